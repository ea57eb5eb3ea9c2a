package batch

import (
	"fmt"
	"math"
	"unsafe"
)

// float is an element of a column of floating-point numbers. All bit patterns are kept.
type float interface{ ~float32 | ~float64 }

// maxExponent is the largest number of decimal places that is tried. Powers of ten up to it are
// exact.
const maxExponent = 18

// asBits is the first byte of a block of bit patterns. A block of decimal numbers begins with the
// number of decimal places.
const asBits = 0xff

// maxInteger bounds the integers of decimal numbers: larger ones are not exact.
const maxInteger = 1 << 53

// maxOff bounds the distance of a value from its decimal number in units of the last place. Numbers
// that were written with 17 digits are off by one or two.
const maxOff = 4

var powers = func() (p [maxExponent + 1]float64) {
	p[0] = 1
	for i := range maxExponent {
		p[i+1] = p[i] * 10
	}
	return p
}()

// appendFloats appends the first rows of a column: element column of each row of width elements.
func appendFloats[T float](dst []byte, v []T, column, width, rows int, order permutation) []byte {
	f := floats[T]{}
	var x [packBlock]T
	for first := 0; first < rows; first += packBlock {
		n := min(packBlock, rows-first)
		for i := range n {
			x[i] = v[order.row(first+i)*width+column]
		}
		dst = f.append(dst, x[:n])
	}
	return dst
}

// readFloats fills element column of each row of out, as Ints does.
func readFloats[T float](out []T, column, width int, data []byte, order permutation) (rest []byte, err error) {
	d := floatDecoder{}
	var x [packBlock]T
	rows := len(out) / width
	for first := 0; first < rows; first += packBlock {
		n := min(packBlock, rows-first)
		if data, err = nextFloats(&d, x[:n], data); err != nil {
			return nil, fmt.Errorf("values from number %d on: %w", first, err)
		}
		if order == nil && width == 1 {
			copy(out[first:], x[:n])
			continue
		}
		for i := range n {
			out[order.row(first+i)*width+column] = x[i]
		}
	}
	return data, nil
}

// floats appends blocks of a column. The zero value is at its start.
type floats[T float] struct {
	exponent         int // of the last block of decimal numbers
	exact, off, bits encoder
	x, y             [packBlock]uint64
	one, two         []byte
}

// append appends a block as decimal numbers or as bit patterns, whichever is shorter.
func (f *floats[T]) append(dst []byte, v []T) []byte {
	x, off := f.x[:len(v)], f.y[:len(v)]
	f.one = f.one[:0]
	// Each block starts from zero, since the previous block may have another form.
	f.exact, f.off, f.bits = encoder{}, encoder{}, encoder{}
	exponent, decimal := f.decimal(v, x, off)
	if decimal {
		f.exponent = exponent
		f.one = f.exact.append(append(f.one, byte(exponent)), x)
		f.one = f.off.append(f.one, off)
		if len(f.one)*8 <= len(v)*24 { // bit patterns are rarely shorter
			return append(dst, f.one...)
		}
	}
	for i, y := range v {
		x[i] = sortable(y)
	}
	f.two = f.bits.append(append(f.two[:0], asBits), x)
	if decimal && len(f.one) <= len(f.two) {
		return append(dst, f.one...)
	}
	return append(dst, f.two...)
}

// decimal fills in the integers of a block, and how far the values are from the decimal numbers, in
// units of the last place. It returns false if there is a value without such a form. It begins with
// the decimal places of the block before: more than needed cost no bits, since the integers have a
// common divisor then.
func (f *floats[T]) decimal(v []T, x, off []uint64) (exponent int, ok bool) {
	if f.exponent > 0 && decimals(v, x, off, f.exponent) == len(v) {
		return f.exponent, true
	}
	for i := 0; i < len(v); {
		if _, _, fits := decimal(v[i], exponent); fits {
			i++
			continue
		}
		if exponent++; exponent > maxExponent {
			return 0, false
		}
	}
	return exponent, decimals(v, x, off, exponent) == len(v)
}

// decimals fills in the integers of values with exponent decimal places, and returns how many
// values have them before the first that does not.
func decimals[T float](v []T, x, off []uint64, exponent int) int {
	for i, y := range v {
		var fits bool
		if x[i], off[i], fits = decimal(y, exponent); !fits {
			return i
		}
	}
	return len(v)
}

// decimal returns the integer of the decimal number nearest to v with exponent places, and the
// distance of v from it.
func decimal[T float](v T, exponent int) (x, off uint64, ok bool) {
	k := math.RoundToEven(float64(v) * powers[exponent])
	if !(math.Abs(k) < maxInteger) {
		return 0, 0, false
	}
	whole := int64(k) // which has no -0
	off = sortable(v) - sortable(T(float64(whole)/powers[exponent]))
	return uint64(whole), off, off+maxOff <= 2*maxOff
}

// sortable returns the bits of a value as an integer in the order of the values, so that neighbours
// have neighbouring integers.
func sortable[T float](v T) uint64 {
	if unsafe.Sizeof(v) == 4 {
		b := int32(math.Float32bits(float32(v)))
		return uint64(int64(b ^ int32(uint32(b>>31)>>1)))
	}
	b := int64(math.Float64bits(float64(v)))
	return uint64(b ^ int64(uint64(b>>63)>>1))
}

func unsortable[T float](x uint64) (v T) {
	if unsafe.Sizeof(v) == 4 {
		b := int32(uint32(x))
		return T(math.Float32frombits(uint32(b ^ int32(uint32(b>>31)>>1))))
	}
	b := int64(x)
	return T(math.Float64frombits(uint64(b ^ int64(uint64(b>>63)>>1))))
}

type floatDecoder struct{ x, off [packBlock]uint64 }

// nextFloats fills v with a block and returns the bytes behind it.
func nextFloats[T float](f *floatDecoder, v []T, data []byte) (rest []byte, err error) {
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: no block of floats", errCorrupt)
	}
	kind, data := data[0], data[1:]
	if kind > maxExponent && kind != asBits {
		return nil, fmt.Errorf("%w: a block of kind %d", errCorrupt, kind)
	}
	x := f.x[:len(v)]
	if data, err = new(decoder).next(x, data); err != nil {
		return nil, err
	}
	if kind == asBits {
		for i, y := range x {
			v[i] = unsortable[T](y)
		}
		return data, nil
	}
	same := len(data) >= 4 && data[0]&widthBits == 0 && data[1] == 0 && data[2] == 0 && data[3] == 1
	power := powers[kind]
	for i, y := range x {
		v[i] = T(float64(int64(y)) / power)
	}
	if same { // no value is off
		return data[4:], nil
	}
	off := f.off[:len(v)]
	if data, err = new(decoder).next(off, data); err != nil {
		return nil, err
	}
	for i, y := range off {
		if y != 0 {
			v[i] = unsortable[T](sortable(v[i]) + y)
		}
	}
	return data, nil
}
