package arrays

import (
	"context"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/arrayset"
)

// Sorted is what Set.Sort returns for an array. Both slices share memory with the slices of other
// arrays of the set.
type Sorted struct {
	Data  []byte   // the elements in order
	Order []uint32 // the place that each had; nil unless it was asked for
}

// sorting is the memory of a sort.
type sorting struct {
	*Set
	keys, order [2]area // what a pass reads and what it writes change places
	counts      area
}

// Sort sorts each array, stably; descending reports for each array whether its largest element
// comes first. Floats are ordered as in NumPy: both zeros are equal, and NaN come last, in both
// directions. An array has at most arrayset.MaxSpan elements. Arrays of up to arrayset.SortSpan
// elements are sorted by one launch together, longer ones by a radix sort.
func (s *Set) Sort(ctx context.Context, descending []bool, order bool) ([]Sorted, error) {
	for _, n := range s.count {
		if n > arrayset.MaxSpan {
			return nil, fmt.Errorf("sort %d elements: at most %d: %w", n, int64(arrayset.MaxSpan),
				device.ErrInvalidArgument)
		}
	}
	sorted, err := s.sort(ctx, descending, order)
	if err != nil {
		return nil, fmt.Errorf("sort %d arrays of %s: %w", len(s.parts), s.e, err)
	}
	return sorted, nil
}

func (s *Set) sort(ctx context.Context, descending []bool, order bool) ([]Sorted, error) {
	m := sorting{Set: s}
	spans := s.spans(s.share())
	words := make([]uint64, 0, arrayset.KeySpanWords*len(spans))
	for _, p := range spans {
		down := uint64(0)
		if descending[p.of] {
			down = 1
		}
		words = append(words, uint64(p.first), uint64(p.count), uint64(s.first[p.of]), down)
	}
	var short []uint64
	var long []int
	for i, n := range s.count {
		if n <= arrayset.SortSpan {
			short = append(short, uint64(s.first[i]), uint64(n))
		} else {
			long = append(long, i)
		}
	}
	bits := []uint64{0, math.MaxUint64}
	tables := []table{s.planTable(words), s.planTable(short), s.planTable(bits)}
	n, size := s.elements(), s.e.Bytes()
	m.keys[0], m.order[0] = s.plan(n*size), s.plan(n*4)
	out := s.plan(n * size)
	if len(long) > 0 {
		// The sorted elements are written when the second keys are no longer read.
		m.keys[1], m.order[1] = out, s.plan(n*4)
		m.counts = s.plan(4 * arrayset.Digits * int64(s.mostTiles()))
	}
	if err := s.upload(tables...); err != nil {
		return nil, err
	}
	keys, places, inMemory := s.arg(m.keys[0]), s.arg(m.order[0]), len(short)/arrayset.SpanWords
	if err := s.launch(arrayset.Keys(s.e), len(spans), arrayset.KeysArgs{
		In: s.in(), Spans: s.arg(tables[0].area), N: uint32(len(spans)), Keys: keys, Order: places,
		Bits: s.arg(tables[2].area),
	}.Args()); err != nil {
		return nil, err
	}
	if err := s.launch(arrayset.SortSpans(s.e), inMemory, arrayset.SortSpansArgs{
		Keys: keys, Order: places, Spans: s.arg(tables[1].area), N: uint32(inMemory),
	}.Args()); err != nil {
		return nil, err
	}
	if len(long) > 0 {
		bits, err := read[uint64](ctx, s, tables[2].area)
		if err != nil {
			return nil, err
		}
		for _, i := range long {
			if err := m.radix(i, bits[0]&^bits[1]); err != nil {
				return nil, err
			}
		}
	}
	if err := s.launch(arrayset.Gather(s.e), len(spans), arrayset.GatherArgs{
		In: s.in(), Order: places, Spans: s.arg(tables[0].area), N: uint32(len(spans)), Out: s.arg(out),
	}.Args()); err != nil {
		return nil, err
	}
	return m.results(ctx, out, order)
}

func (m *sorting) results(ctx context.Context, out area, order bool) ([]Sorted, error) {
	from := out
	if order { // in front of the elements
		from = area{m.order[0].off, out.off + out.bytes - m.order[0].off}
	}
	words, err := read[uint64](ctx, m.Set, from)
	if err != nil {
		return nil, err
	}
	data := device.Bytes(words)
	elements := data[out.off-from.off:]
	all := make([]Sorted, len(m.parts))
	for i := range all {
		at, size := m.first[i]*m.e.Bytes(), m.count[i]*m.e.Bytes()
		all[i].Data = elements[at:][:size:size]
		if order {
			all[i].Order = device.Of[uint32](data[4*m.first[i]:][:4*m.count[i]])
		}
	}
	return all, nil
}

// mostTiles returns the maximum of tiles of a pass: a few for each multiprocessor. One block sums
// the counts of all tiles, so more tiles would make that sum slower than the rest of the pass.
func (s *Set) mostTiles() int { return 4 * max(1, s.d.Properties().Multiprocessors) }

// radix puts the passes for array i, a long one, into the stream: they sort its keys with their
// places, by the digits in which bits that are set differ among keys. The result is in the first of
// both areas.
func (m *sorting) radix(i int, differ uint64) error {
	n, size := m.count[i], m.e.Bytes()
	tiles := int(min((n+4095)/4096, int64(m.mostTiles())))
	share := (n + int64(tiles) - 1) / int64(tiles)
	part := func(a area, size int64) device.Arg { return m.arg(area{a.off + m.first[i]*size, n * size}) }
	counts := area{m.counts.off, 4 * arrayset.Digits * int64(tiles)}
	now := 0
	for shift := range 8 * size {
		if shift%8 != 0 || differ>>shift&0xff == 0 {
			continue
		}
		keys, order := part(m.keys[now], size), part(m.order[now], 4)
		if err := m.launch(arrayset.CountDigits(m.e), tiles, arrayset.DigitsArgs{
			Keys: keys, N: uint64(n), Shift: uint32(shift), Share: uint64(share), Tiles: uint32(tiles),
			Counts: m.arg(counts),
		}.Args()); err != nil {
			return err
		}
		if err := m.starts(counts, tiles); err != nil {
			return err
		}
		now = 1 - now
		if err := m.launch(arrayset.Scatter(m.e), tiles, arrayset.ScatterArgs{
			Keys: keys, Order: order, N: uint64(n), Shift: uint32(shift), Share: uint64(share), Tiles: uint32(tiles),
			Starts: m.arg(counts), KeysOut: part(m.keys[now], size), OrderOut: part(m.order[now], 4),
		}.Args()); err != nil {
			return err
		}
	}
	if now == 0 {
		return nil
	}
	off := m.first[i] * 4
	return m.stream.Copy(m.mem, m.order[0].off+off, m.mem, m.order[1].off+off, 4*n)
}

func (m *sorting) starts(counts area, tiles int) error {
	k, err := m.d.Kernel(arrayset.Starts)
	if err != nil {
		return err
	}
	return m.stream.Launch(k, device.Geometry{Grid: 1, Block: 1024}, arrayset.StartsArgs{
		Counts: m.arg(counts), N: uint32(arrayset.Digits * tiles),
	}.Args()...)
}
