package batch

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
)

// integer is an element of a column of integers. All arithmetic is modulo 2^64, and elements of 32
// bits are the low half.
type integer interface {
	~uint32 | ~int32 | ~uint64 | ~int64
}

// permutation is an order of rows: element i is the row that is stored as number i. A nil
// permutation stores rows as they are.
type permutation []uint32

func (o permutation) row(i int) int {
	if o == nil {
		return i
	}
	return int(o[i])
}

// Bits of the first byte of a block, next to the width.
const (
	widthBits  = 0x7f
	deltasFlag = 0x80 // the values are differences to the values before them
)

// appendInts appends the first rows of a column to dst and returns the longer slice. With a
// permutation, the first rows are the first of its order.
func appendInts[T integer](dst []byte, v []T, rows int, order permutation) []byte {
	var e encoder
	var x [packBlock]uint64
	for first := 0; first < rows; first += packBlock {
		n := min(packBlock, rows-first)
		if order == nil {
			for i, y := range v[first:][:n] {
				x[i] = uint64(y)
			}
		} else {
			for i, row := range order[first:][:n] {
				x[i] = uint64(v[row])
			}
		}
		dst = e.append(dst, x[:n])
	}
	return dst
}

// readInts fills out with a column of data and returns the bytes behind it. order, if it is not
// nil, has the length of out and is a permutation.
func readInts[T integer](out []T, data []byte, order permutation) (rest []byte, err error) {
	var d decoder
	var x [packBlock]uint64
	for first := 0; first < len(out); first += packBlock {
		n := min(packBlock, len(out)-first)
		if data, err = d.next(x[:n], data); err != nil {
			return nil, fmt.Errorf("values from number %d on: %w", first, err)
		}
		if order == nil {
			for i, y := range x[:n] {
				out[first+i] = T(y)
			}
		} else {
			for i, row := range order[first:][:n] {
				out[row] = T(x[i])
			}
		}
	}
	return data, nil
}

// encoder appends blocks of a column. The zero value is at its start.
type encoder struct {
	last   uint64 // the value before the block
	deltas [packBlock]uint64
}

// append appends a block of up to Block values, as they are or as differences, whichever is
// shorter. It does not keep x.
func (e *encoder) append(dst []byte, x []uint64) []byte {
	before := e.last
	d := e.deltas[:len(x)]
	for i, v := range x {
		d[i] = v - before
		before = v
	}
	e.last = before
	deltas := planOf(d)
	plain := plan{bytes: deltas.bytes + 1}
	if deltas.width > 0 {
		plain = planOf(x)
	}
	if plain.bytes <= deltas.bytes {
		return plain.append(dst, x, 0)
	}
	return deltas.append(dst, d, deltasFlag)
}

// plan is how the values of a block are stored: value v as (v-base)/scale in width bits. Values
// outside [base, base+span] are exceptions.
type plan struct {
	base, span, scale uint64
	width             int
	bytes             int // an estimate
}

func (p *plan) outside(v uint64) bool { return v-p.base > p.span }

// exceptionBytes is the estimated length of an exception.
const exceptionBytes = 5

// maxExceptions is the largest number of exceptions of a plan.
const maxExceptions = 16

// planOf chooses the shortest form of a block.
func planOf(v []uint64) plan {
	low, high := int64(v[0]), int64(v[0])
	for _, x := range v[1:] {
		low, high = min(low, int64(x)), max(high, int64(x))
	}
	p := plan{base: uint64(low), span: uint64(high) - uint64(low), scale: 1}
	p.width = widthOf(p.span)
	p.bytes = packedBytes(len(v), p.width)
	if p.bytes > 2*exceptionBytes && len(v) >= 4 && p.trims(v) {
		p.trim(v)
	}
	if p.width > 1 {
		p.rescale(v)
	}
	return p
}

// trims reports whether one bit less may be enough for all but maxExceptions values: they are in
// nine buckets in a row of the sixteen or fewer that the range has. It costs less than trim.
func (p *plan) trims(v []uint64) bool {
	shift := max(0, bits.Len64(p.span)-4)
	var buckets [16]int
	for _, x := range v {
		buckets[(x-p.base)>>shift]++
	}
	in := 0
	for i, n := range buckets {
		if in += n; i >= 9 {
			in -= buckets[i-9]
		}
		if in >= len(v)-maxExceptions {
			return true
		}
	}
	return false
}

// trim finds values to leave out at both ends of the range, so that the remaining values have fewer
// bits.
func (p *plan) trim(v []uint64) {
	most := min(maxExceptions, len(v)/2-1)
	// The smallest values in their order, and the largest in the order from the largest.
	var low, high [maxExceptions + 1]int64
	for i := range low {
		low[i], high[i] = math.MaxInt64, math.MinInt64
	}
	for _, x := range v {
		y := int64(x)
		if y < low[most] {
			i := most
			for ; i > 0 && low[i-1] > y; i-- {
				low[i] = low[i-1]
			}
			low[i] = y
		}
		if y > high[most] {
			i := most
			for ; i > 0 && high[i-1] < y; i-- {
				high[i] = high[i-1]
			}
			high[i] = y
		}
	}
	for out := 1; out <= most; out++ {
		// The fewest bits that leaving out these numbers of values at the two ends could need.
		width := widthOf(uint64(high[out]) - uint64(low[out]))
		if packedBytes(len(v), width)+out*exceptionBytes >= p.bytes {
			continue
		}
		for n := range out + 1 {
			base := uint64(low[n])
			span := uint64(high[out-n]) - base
			width := widthOf(span)
			if bytes := packedBytes(len(v), width) + out*exceptionBytes; bytes < p.bytes {
				*p = plan{base: base, span: span, scale: 1, width: width, bytes: bytes}
			}
		}
	}
}

// rescale divides the values by their largest common divisor.
func (p *plan) rescale(v []uint64) {
	scale := uint64(0)
	for _, x := range v {
		if x -= p.base; x > p.span || x == 0 {
			continue
		}
		if scale = gcd(x, scale); scale == 1 {
			return
		}
	}
	if scale == 0 { // all values are base
		scale = 1
	}
	p.bytes -= packedBytes(len(v), p.width)
	p.scale, p.width = scale, widthOf(p.span/scale)
	p.bytes += packedBytes(len(v), p.width)
}

// gcd returns the greatest common divisor; gcd(a, 0) is a.
func gcd(a, b uint64) uint64 {
	if b != 0 && a%b == 0 { // most values are multiples of what was found so far
		return b
	}
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (p *plan) append(dst []byte, v []uint64, flags byte) []byte {
	var x [packBlock]uint64
	var out [packBlock]byte
	exceptions := 0
	for i, y := range v {
		if p.outside(y) {
			out[exceptions] = byte(i)
			exceptions++
			continue
		}
		x[i] = y - p.base
	}
	if p.scale > 1 {
		for i := range v {
			x[i] /= p.scale
		}
	}
	dst = append(dst, byte(p.width)|flags, byte(exceptions))
	dst = binary.AppendUvarint(dst, zigzag(p.base))
	dst = binary.AppendUvarint(dst, p.scale)
	dst = appendPacked(dst, x[:len(v)], p.width)
	dst = append(dst, out[:exceptions]...)
	for _, i := range out[:exceptions] {
		dst = binary.AppendUvarint(dst, zigzag(v[i]-p.base))
	}
	return dst
}

// decoder reads the blocks of a column. The zero value is at its start.
type decoder struct{ last uint64 }

// next fills x with a block and returns the bytes behind it.
func (d *decoder) next(x []uint64, data []byte) (rest []byte, err error) {
	if len(data) < 2 {
		return nil, fmt.Errorf("%w: no block", errCorrupt)
	}
	width, deltas, exceptions := int(data[0]&widthBits), data[0]&deltasFlag != 0, int(data[1])
	if width > widest && width != 64 {
		return nil, fmt.Errorf("%w: a width of %d bits", errCorrupt, width)
	}
	base, data, err := uvarint(data[2:], "a base")
	if err != nil {
		return nil, err
	}
	scale, data, err := uvarint(data, "a scale")
	if err != nil {
		return nil, err
	}
	n := packedBytes(len(x), width)
	if len(data) < n+exceptions {
		return nil, fmt.Errorf("%w: %d bytes for %d values of %d bits", errCorrupt, len(data), len(x), width)
	}
	base = unzigzag(base)
	unpackBits(x, data[:n], width, base, scale)
	places, data := data[n:][:exceptions], data[n+exceptions:]
	for _, at := range places {
		var v uint64
		if v, data, err = uvarint(data, "an exception"); err != nil {
			return nil, err
		}
		if int(at) >= len(x) {
			return nil, fmt.Errorf("%w: an exception at %d of %d", errCorrupt, at, len(x))
		}
		x[at] = base + unzigzag(v)
	}
	if deltas {
		last := d.last
		for i, v := range x {
			last += v
			x[i] = last
		}
	}
	d.last = x[len(x)-1]
	return data, nil
}
