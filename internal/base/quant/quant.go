// Package quant is the layout of the elements of foreign models: floats of 32 and 16 bits, and
// blocks of integers with common scales. It decodes them to float32, plainly: Decode is the twin of
// each faster routine. The blocks are ggml's, as ggml-common.h and ggml-quants.c of
// github.com/ggml-org/ggml describe them; files of GGUF name them.
package quant

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Types of elements, by the names that safetensors and GGUF have for them.
const (
	F32  = "F32"
	F16  = "F16"
	BF16 = "BF16"
	Q8_0 = "Q8_0" // a scale, 32 integers of 8 bits
	Q4_0 = "Q4_0" // a scale, 32 integers of 4 bits
	Q4K  = "Q4_K" // two scales, 8 pairs of 6 bits, 256 integers of 4 bits
	Q6K  = "Q6_K" // a scale, 16 scales of 8 bits, 256 integers of 6 bits
)

// ErrType is a type that cannot be decoded, or bytes that are no elements of the type.
var ErrType = errors.New("elements that cannot be decoded")

// layout is how a type lies in memory. All is little-endian. decode decodes one block, or any
// number of elements if a block is one element.
type layout struct {
	elements, bytes int64 // of a block
	decode          func(dst []float32, src []byte)
}

var layouts = map[string]layout{
	F32: {1, 4, func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	}},
	F16: {1, 2, func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = half(src[2*i:])
		}
	}},
	BF16: {1, 2, func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(le16(src[2*i:])) << 16)
		}
	}},
	Q8_0: {32, 34, decodeQ8},
	Q4_0: {32, 18, decodeQ4},
	Q4K:  {256, 144, decodeQ4K},
	Q6K:  {256, 210, decodeQ6K},
}

// Block returns the elements and the bytes of a block of a type. A type that Decode does not know
// has none.
func Block(kind string) (elements, bytes int64, known bool) {
	l, known := layouts[kind]
	return l.elements, l.bytes, known
}

// Decode decodes all of src, which is whole blocks, into dst, which has exactly one place for each
// element. Each product and each difference is rounded to float32. The error is an ErrType.
func Decode(kind string, dst []float32, src []byte) error {
	l, known := layouts[kind]
	if !known {
		return fmt.Errorf("%w: type %.100q: convert them to F32, F16, BF16, Q8_0, Q4_0, Q4_K or Q6_K", ErrType, kind)
	}
	n := int64(len(src)) / l.bytes
	if n*l.bytes != int64(len(src)) || n*l.elements != int64(len(dst)) {
		return fmt.Errorf("%w: %d bytes are not %d elements of type %s", ErrType, len(src), len(dst), kind)
	}
	if l.elements == 1 {
		l.decode(dst, src)
		return nil
	}
	for i := range n {
		l.decode(dst[i*l.elements:][:l.elements], src[i*l.bytes:][:l.bytes])
	}
	return nil
}

func le16(b []byte) uint16 { return binary.LittleEndian.Uint16(b) }

// half reads an IEEE float of 16 bits. float32 has each of its values.
func half(b []byte) float32 {
	v := uint32(le16(b))
	sign, exponent, fraction := v>>15<<31, v>>10&31, v&1023
	switch exponent {
	case 0: // zero and subnormal: multiples of 2^-24
		return math.Float32frombits(math.Float32bits(float32(fraction)*0x1p-24) | sign)
	case 31: // infinite or not a number
		return math.Float32frombits(sign | 0xff<<23 | fraction<<13)
	}
	return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
}

// toHalf rounds to an IEEE float of 16 bits, ties to even. v is finite and not negative.
func toHalf(v float32) uint16 {
	switch {
	case v >= 65520: // rounds to a value above the largest, 65504
		return 31 << 10
	case v < 0x1p-14: // subnormal
		return uint16(math.RoundToEven(float64(v) * 0x1p24))
	}
	bits := math.Float32bits(v)
	bits += 1<<12 - 1 + bits>>13&1
	return uint16(bits>>13 - (127-15)<<10)
}

func decodeQ8(dst []float32, b []byte) {
	d := half(b)
	for i := range dst {
		dst[i] = d * float32(int8(b[2+i]))
	}
}

// EncodeQ8 encodes values as type Q8_0. Their number is a multiple of 32, and they are finite and
// below 8e6; otherwise the error is an ErrType. A decoded value is off by at most half of the
// block's scale, which is the largest magnitude of the block over 127, and by the scale's own
// rounding to 11 bits.
func EncodeQ8(src []float32) ([]byte, error) {
	if len(src)%32 != 0 {
		return nil, fmt.Errorf("%w: %d values are no blocks of 32 of type %s", ErrType, len(src), Q8_0)
	}
	out := make([]byte, 0, len(src)/32*34)
	for at := 0; at < len(src); at += 32 {
		var largest float64
		for i, v := range src[at:][:32] {
			if !(math.Abs(float64(v)) < 8e6) {
				return nil, fmt.Errorf("%w: value %d is %v: type %s takes finite values below 8e6", ErrType, at+i, v,
					Q8_0)
			}
			largest = max(largest, math.Abs(float64(v)))
		}
		scale := largest / 127
		out = binary.LittleEndian.AppendUint16(out, toHalf(float32(scale)))
		for _, v := range src[at:][:32] {
			q := 0.0
			if scale > 0 {
				q = math.Round(float64(v) / scale)
			}
			out = append(out, byte(int8(q)))
		}
	}
	return out, nil
}

func decodeQ4(dst []float32, b []byte) {
	d := half(b)
	for i, q := range b[2:] {
		dst[i] = d * float32(int(q&15)-8)
		dst[i+16] = d * float32(int(q>>4)-8)
	}
}

// pair returns scale and minimum i, 0 to 7, of the 12 bytes with 6 bits each of a block of Q4_K.
func pair(i int, q []byte) (scale, least byte) {
	if i < 4 {
		return q[i] & 63, q[i+4] & 63
	}
	return q[i+4]&15 | q[i-4]>>6<<4, q[i+4]>>4 | q[i]>>6<<4
}

// A block of Q4_K has d, dmin, 12 bytes of pairs, and 4 runs of 32 bytes. The low bits of a run are
// 32 elements, its high bits the next 32; each 32 have a pair.
func decodeQ4K(dst []float32, b []byte) {
	d, dmin := half(b), half(b[2:])
	for run := range 4 {
		s0, m0 := pair(2*run, b[4:])
		s1, m1 := pair(2*run+1, b[4:])
		scale0, least0 := d*float32(s0), dmin*float32(m0)
		scale1, least1 := d*float32(s1), dmin*float32(m1)
		for i, q := range b[16+32*run:][:32] {
			dst[64*run+i] = float32(scale0*float32(q&15)) - least0
			dst[64*run+32+i] = float32(scale1*float32(q>>4)) - least1
		}
	}
}

// A block of Q6_K has 128 bytes with the low 4 bits, 64 with the high 2 bits, 16 scales, and d.
func decodeQ6K(dst []float32, b []byte) {
	d := half(b[208:])
	for part := range 2 {
		low, high, scales, to := b[64*part:], b[128+32*part:], b[192+8*part:], dst[128*part:]
		for i := range 32 {
			for k, q := range [4]byte{low[i] & 15, low[i+32] & 15, low[i] >> 4, low[i+32] >> 4} {
				q |= high[i] >> (2 * k) & 3 << 4
				scale := d * float32(int8(scales[2*k+i/16]))
				to[32*k+i] = scale * float32(int(q)-32)
			}
		}
	}
}
