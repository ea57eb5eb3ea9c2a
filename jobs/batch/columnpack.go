package batch

// This file stores columns of numbers and texts in few bits: blocks of integers as packed
// differences, decimal numbers as integers, and times of day as their numbers. docs/formats/rows.md
// describes the bytes. Decoders take any bytes: they return values or an ErrCorrupt, read nothing
// outside their input, and write only the slices of the caller, whose lengths are the numbers of
// values. So the caller bounds the memory.

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// packBlock is the number of values that share a width. Positions in a block fit a byte.
const packBlock = 256

// widest is the largest width of packed bits below a whole word: a value and its shift by up to 7
// bits fit one word.
const widest = 57

func packedBytes(n, width int) int { return (n*width + 7) / 8 }

// appendPacked appends the low bits of the values, the first one in the lowest bits. width is 0 to
// widest, or 64.
func appendPacked(dst []byte, v []uint64, width int) []byte {
	if width == 64 {
		for _, x := range v {
			dst = binary.LittleEndian.AppendUint64(dst, x)
		}
		return dst
	}
	start, n := len(dst), packedBytes(len(v), width)
	var room [8]byte
	dst = append(dst, make([]byte, n)...)
	dst = append(dst, room[:]...) // the last word may end behind the values
	p := dst[start:]
	for i, x := range v {
		bit := i * width
		at := p[bit>>3:][:8]
		binary.LittleEndian.PutUint64(at, binary.LittleEndian.Uint64(at)|x<<(bit&7))
	}
	return dst[:start+n]
}

// unpackBits reads len(out) values, each as base + scale*x for the packed x. p has exactly their
// bytes.
func unpackBits(out []uint64, p []byte, width int, base, scale uint64) {
	switch width {
	case 0:
		for i := range out {
			out[i] = base
		}
		return
	case 64:
		for i := range out {
			out[i] = base + scale*binary.LittleEndian.Uint64(p[8*i:])
		}
		return
	}
	mask := uint64(1)<<width - 1
	whole := 0 // values for which a whole word can be read
	if len(p) >= 8 {
		whole = min(len(out), ((len(p)-8)*8+7)/width+1)
	}
	bit := 0
	if scale == 1 {
		for i := range out[:whole] {
			out[i] = base + binary.LittleEndian.Uint64(p[bit>>3:])>>(bit&7)&mask
			bit += width
		}
	} else {
		for i := range out[:whole] {
			out[i] = base + scale*(binary.LittleEndian.Uint64(p[bit>>3:])>>(bit&7)&mask)
			bit += width
		}
	}
	var tail [16]byte
	first := bit >> 3
	if whole < len(out) {
		copy(tail[:], p[first:])
	}
	for i := whole; i < len(out); i++ {
		at := bit>>3 - first
		out[i] = base + scale*(binary.LittleEndian.Uint64(tail[at:])>>(bit&7)&mask)
		bit += width
	}
}

func widthOf(most uint64) int {
	if n := bits.Len64(most); n <= widest {
		return n
	}
	return 64
}

// zigzag maps signed numbers near 0 to small ones.
func zigzag(v uint64) uint64 { return v<<1 ^ uint64(int64(v)>>63) }

func unzigzag(v uint64) uint64 { return v>>1 ^ -(v & 1) }

func uvarint(p []byte, what string) (uint64, []byte, error) {
	v, n := binary.Uvarint(p)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: no number for %s", errCorrupt, what)
	}
	return v, p[n:], nil
}
