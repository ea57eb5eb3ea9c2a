// Package arrays reduces, counts and sorts arrays on a device. A Set has one or many arrays of one
// type: they are uploaded together, one set of launches serves all, and the results are downloaded
// together. The results are the same bits on every device.
package arrays

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
)

// Set is arrays of one type on a device. It is used once, by one goroutine: for one of the methods
// Stats, Sums, Histograms and Sort. The caller closes it; after a method that ended with its
// context, work on the device may be in progress, and Close waits for it.
type Set struct {
	d      device.Device
	stream device.Stream
	e      arrayset.Element
	parts  [][]byte
	// Results are read from the buffer by areas; offsets of areas are multiples of device.RangeAlign.
	first []int64 // the place of the first element of each array in the buffer
	count []int64 // elements of each array

	size int64 // bytes of the buffer, as far as they are planned
	mem  device.Buffer
}

// New returns a set of arrays on a device: elements in little-endian order. A tail shorter than an
// element is left out. It copies nothing; the arrays must not change before Close.
func New(d device.Device, e arrayset.Element, parts ...[]byte) (*Set, error) {
	s := &Set{d: d, e: e, parts: parts}
	for i := range parts {
		n := int64(len(parts[i])) / e.Bytes()
		parts[i] = parts[i][:n*e.Bytes()]
		s.first, s.count = append(s.first, s.size/e.Bytes()), append(s.count, n)
		// A multiple of 4 elements, so that keys and places of an array are aligned too.
		s.size += (n + 3) &^ 3 * e.Bytes()
	}
	s.plan(0)
	stream, err := d.NewStream()
	if err != nil {
		return nil, fmt.Errorf("open a stream: %w", err)
	}
	s.stream = stream
	return s, nil
}

// Close waits for the work of the set and releases its memory. A second call does nothing.
func (s *Set) Close() error {
	err := s.stream.Close()
	if s.mem != nil {
		err = errors.Join(err, s.mem.Close())
	}
	return err
}

// elements returns the number of elements of the buffer, with the gaps behind arrays.
func (s *Set) elements() int64 {
	if len(s.first) == 0 {
		return 0
	}
	last := len(s.first) - 1
	return s.first[last] + (s.count[last]+3)&^3
}

type area struct{ off, bytes int64 }

// plan adds an area of n bytes to the buffer. All areas are planned before upload allocates it.
func (s *Set) plan(n int64) area {
	s.size = (s.size + device.RangeAlign - 1) &^ (device.RangeAlign - 1)
	a := area{s.size, n}
	s.size += n
	return a
}

// table is an area that is uploaded with the arrays.
type table struct {
	area
	words []uint64
}

func (s *Set) planTable(words []uint64) table { return table{s.plan(int64(8 * len(words))), words} }

// joined is the maximum of bytes that are copied into one upload.
const joined = 4 << 20

// upload allocates the buffer and copies the arrays and the tables into it, which follow the arrays
// without a gap.
func (s *Set) upload(tables ...table) (err error) {
	if s.mem, err = s.d.Alloc(max(s.size, device.RangeAlign), "arrays"); err != nil {
		return fmt.Errorf("%d bytes on the device: %w", s.size, err)
	}
	end := int64(0)
	for i := range s.parts {
		end = s.first[i]*s.e.Bytes() + int64(len(s.parts[i]))
	}
	for _, t := range tables {
		end = t.off + t.bytes
	}
	if end <= joined {
		all := make([]byte, end)
		for i, p := range s.parts {
			copy(all[s.first[i]*s.e.Bytes():], p)
		}
		for _, t := range tables {
			copy(all[t.off:], device.Bytes(t.words))
		}
		return s.write(0, all)
	}
	for i, p := range s.parts {
		if err := s.write(s.first[i]*s.e.Bytes(), p); err != nil {
			return err
		}
	}
	for _, t := range tables {
		if err := s.write(t.off, device.Bytes(t.words)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Set) write(off int64, data []byte) error {
	if err := s.mem.Write(off, data); err != nil {
		return fmt.Errorf("copy %d bytes to the device: %w", len(data), err)
	}
	return nil
}

func (s *Set) arg(a area) device.Arg { return device.Range(s.mem, a.off, a.bytes) }

func (s *Set) in() device.Arg { return s.arg(area{0, s.elements() * s.e.Bytes()}) }

// most is the largest grid of a launch over spans.
const most = 1 << 14

// launch puts a kernel over n spans into the stream. It does nothing for no spans. A block works on
// the spans from its index on in steps of the grid, so any grid serves any number of spans.
func (s *Set) launch(name string, n int, args []device.Arg) error {
	if n == 0 {
		return nil
	}
	k, err := s.d.Kernel(name)
	if err != nil {
		return err
	}
	return s.stream.Launch(k, device.Geometry{Grid: min(n, most), Block: 256}, args...)
}

// read waits for the work and returns the bytes of an area as elements. The caller owns them.
func read[T device.Scalar](ctx context.Context, s *Set, a area) ([]T, error) {
	if ctx.Err() != nil { // a launch that has ended would hide it
		return nil, context.Cause(ctx)
	}
	if err := s.stream.Sync(ctx); err != nil {
		return nil, err
	}
	var zero [1]T
	out := make([]T, a.bytes/int64(len(device.Bytes(zero[:]))))
	if err := s.mem.Read(a.off, device.Bytes(out)); err != nil {
		return nil, fmt.Errorf("copy %d bytes from the device: %w", a.bytes, err)
	}
	return out, nil
}

// span is a part of array of.
type span struct {
	of           int
	first, count int64
}

// spans divides the arrays into spans of at most a number of elements. An array without elements
// has one span.
func (s *Set) spans(most int64) (all []span) {
	for i, n := range s.count {
		for at := int64(0); at == 0 || at < n; at += most {
			all = append(all, span{i, s.first[i] + at, min(most, n-at)})
		}
	}
	return all
}

// share returns the elements of a span, so that all multiprocessors have work: small arrays in
// spans of 4,096 elements, and large ones in spans that keep their tables small.
func (s *Set) share() int64 { return min(max(s.elements()/2048, 4096), 1<<16) }

// Number is an element of an array, by its key.
type Number struct {
	of  arrayset.Element
	key uint64
}

// Float returns the number as a float64, rounded to the nearest.
func (n Number) Float() float64 {
	switch n.of {
	case arrayset.F32:
		bits := uint32(n.key)
		if bits>>31 != 0 {
			return float64(math.Float32frombits(bits &^ (1 << 31)))
		}
		return float64(math.Float32frombits(^bits))
	case arrayset.F64:
		if n.key>>63 != 0 {
			return math.Float64frombits(n.key &^ (1 << 63))
		}
		return math.Float64frombits(^n.key)
	case arrayset.I32, arrayset.I64:
		return float64(n.signed())
	}
	return float64(n.key)
}

func (n Number) signed() int64 {
	if n.of.Wide() {
		return int64(n.key ^ 1<<63)
	}
	return int64(int32(uint32(n.key) ^ 1<<31))
}

// String returns the shortest text that reads as the number in its type.
func (n Number) String() string {
	switch {
	case n.of == arrayset.F32:
		return strconv.FormatFloat(n.Float(), 'g', -1, 32)
	case n.of.Float():
		return strconv.FormatFloat(n.Float(), 'g', -1, 64)
	case n.of[0] == 'i':
		return strconv.FormatInt(n.signed(), 10)
	}
	return strconv.FormatUint(n.key, 10)
}

// Stats are what Set.Stats returns for an array.
type Stats struct {
	// Least and Most are the smallest and the largest element that is no NaN, where -0 is less than
	// 0. They are nothing if the array has no such element.
	Least, Most Number
	NaN         uint64   // elements that are NaN
	Sum         *big.Int // of integers, exact; nil for floats
}

// Stats returns the least and the largest element and, of integers, the sum of each array.
func (s *Set) Stats(ctx context.Context) ([]Stats, error) {
	spans := s.spans(s.share())
	var words []uint64
	for _, p := range spans {
		words = append(words, uint64(p.first), uint64(p.count))
	}
	t := s.planTable(words)
	out := s.plan(int64(8 * arrayset.StatsWords * len(spans)))
	err := s.upload(t)
	if err == nil {
		err = s.launch(arrayset.Stats(s.e), len(spans), arrayset.StatsArgs{
			In: s.in(), Spans: s.arg(t.area), N: uint32(len(spans)), Out: s.arg(out),
		}.Args())
	}
	if err != nil {
		return nil, fmt.Errorf("reduce %d arrays of %s: %w", len(s.parts), s.e, err)
	}
	results, err := read[uint64](ctx, s, out)
	if err != nil {
		return nil, fmt.Errorf("reduce %d arrays of %s: %w", len(s.parts), s.e, err)
	}
	all := make([]Stats, len(s.parts))
	for i := range all {
		all[i].Least, all[i].Most = Number{s.e, math.MaxUint64}, Number{s.e, 0}
		if !s.e.Float() {
			all[i].Sum = new(big.Int)
		}
	}
	for i, p := range spans {
		r, a := results[arrayset.StatsWords*i:], &all[p.of]
		a.Least.key = min(a.Least.key, r[arrayset.StatsLeast])
		a.Most.key = max(a.Most.key, r[arrayset.StatsMost])
		if s.e.Float() {
			a.NaN += r[arrayset.StatsLow]
			continue
		}
		high := new(big.Int).SetUint64(r[arrayset.StatsHigh])
		if s.e[0] == 'i' {
			high.SetInt64(int64(r[arrayset.StatsHigh]))
		}
		a.Sum.Add(a.Sum, high.Lsh(high, 32))
		a.Sum.Add(a.Sum, new(big.Int).SetUint64(r[arrayset.StatsLow]))
	}
	return all, nil
}

// Sums returns the sum of each array of floats in float64. The order of additions is fixed: element
// i of a block of arrayset.SumSpan elements is added to lane i modulo arrayset.SumLanes, lanes are
// added in halves, and the sums of the blocks are summed in the same way.
func (s *Set) Sums(ctx context.Context) ([]float64, error) {
	type level struct {
		table table
		out   area
		n     int
	}
	var levels []level
	at := make([]area, len(s.parts)) // the sum of each array
	spans := s.spans(arrayset.SumSpan)
	for len(spans) > 0 {
		words := make([]uint64, 0, 2*len(spans))
		for _, p := range spans {
			words = append(words, uint64(p.first), uint64(p.count))
		}
		levels = append(levels, level{table: s.planTable(words), n: len(spans)})
		var next []span
		for i := 0; i < len(spans); {
			n := 1
			for i+n < len(spans) && spans[i+n].of == spans[i].of {
				n++
			}
			at[spans[i].of] = area{int64(len(levels) - 1), int64(i)}
			for k := 0; n > 1 && k < n; k += arrayset.SumSpan {
				next = append(next, span{spans[i].of, int64(i + k), int64(min(arrayset.SumSpan, n-k))})
			}
			i += n
		}
		spans = next
	}
	var tables []table
	for _, l := range levels {
		tables = append(tables, l.table)
	}
	begin := s.plan(0)
	for i := range levels {
		levels[i].out = s.plan(int64(8 * levels[i].n))
	}
	err := s.upload(tables...)
	in, name := s.in(), arrayset.Sum(s.e)
	for _, l := range levels {
		if err == nil {
			err = s.launch(name, l.n, arrayset.SumArgs{
				In: in, Spans: s.arg(l.table.area), N: uint32(l.n), Out: s.arg(l.out),
			}.Args())
		}
		in, name = s.arg(l.out), arrayset.Sum(arrayset.F64)
	}
	if err != nil {
		return nil, fmt.Errorf("sum %d arrays of %s: %w", len(s.parts), s.e, err)
	}
	results, err := read[float64](ctx, s, area{begin.off, s.size - begin.off})
	if err != nil {
		return nil, fmt.Errorf("sum %d arrays of %s: %w", len(s.parts), s.e, err)
	}
	sums := make([]float64, len(s.parts))
	for i, a := range at {
		sums[i] = results[(levels[a.off].out.off-begin.off)/8+a.bytes]
	}
	return sums, nil
}

// Bins are bins of equal width from Min to Max, Count of them, at least 1. The last one includes
// Max. Min is less than Max, and Count/(Max-Min) is finite.
type Bins struct {
	Min, Max float64
	Count    int
}

// Histogram is what Set.Histograms returns for an array.
type Histogram struct {
	Counts            []uint64 // by bin
	Below, Above, NaN uint64   // elements in no bin
}

// Histograms counts the elements of each array by bins; bins[i] has the bins of array i. The bin of
// an element x is the integer part, for x as a float64, of (x-Min) * (Count/(Max-Min)).
func (s *Set) Histograms(ctx context.Context, bins []Bins) ([]Histogram, error) {
	spans := s.spans(s.share())
	place, total := make([]int, len(bins)), 0
	for i, b := range bins {
		place[i] = total
		total += b.Count
	}
	words := make([]uint64, 0, arrayset.HistogramWords*len(spans))
	for _, p := range spans {
		b := bins[p.of]
		words = append(words, uint64(p.first), uint64(p.count), math.Float64bits(b.Min), math.Float64bits(b.Max),
			math.Float64bits(float64(b.Count)/(b.Max-b.Min)), uint64(b.Count), uint64(place[p.of]), uint64(3*p.of))
	}
	t := s.planTable(words)
	counts := s.plan(int64(8 * total))
	outside := s.plan(int64(8 * 3 * len(bins)))
	err := s.upload(t)
	all := area{counts.off, outside.off + outside.bytes - counts.off}
	if err == nil {
		err = s.stream.Fill(s.mem, all.off, all.bytes, 0)
	}
	if err == nil {
		err = s.launch(arrayset.Histogram(s.e), len(spans), arrayset.HistogramArgs{
			In: s.in(), Spans: s.arg(t.area), N: uint32(len(spans)), Counts: s.arg(counts), Outside: s.arg(outside),
		}.Args())
	}
	if err != nil {
		return nil, fmt.Errorf("count %d arrays of %s: %w", len(s.parts), s.e, err)
	}
	results, err := read[uint64](ctx, s, all)
	if err != nil {
		return nil, fmt.Errorf("count %d arrays of %s: %w", len(s.parts), s.e, err)
	}
	rest := results[(outside.off-counts.off)/8:]
	out := make([]Histogram, len(bins))
	for i, b := range bins {
		out[i] = Histogram{results[place[i]:][:b.Count:b.Count], rest[3*i], rest[3*i+1], rest[3*i+2]}
	}
	return out, nil
}
