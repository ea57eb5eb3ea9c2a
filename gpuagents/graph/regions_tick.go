package graph

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/field"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

func (r *regions) tick(ctx, wait context.Context, tick uint32, count, most int) (tally []uint64, err error) {
	return r.run(wait, func() error { return r.put(ctx, wait, tick, count, most) },
		func(i int) int64 { return r.all[i].at.tally })
}

func (r *regions) put(ctx, wait context.Context, tick uint32, count, most int) error {
	if err := r.begin(count); err != nil {
		return err
	}
	if err := r.Steps(ctx, wait, count, max(1, most/2), r.exchange, func(i, k int) error {
		err := r.All[i].Fail(r.launch(i, k, tick+uint32(k), k == count-1))
		if i == len(r.all)-1 && r.s.delayed != nil {
			r.s.delayed.advance()
		}
		return err
	}); err != nil {
		return err
	}
	for i := range r.All[1:] {
		if err := r.All[i+1].Fail(r.giveBack(i + 1)); err != nil {
			return err
		}
	}
	return nil
}

// begin puts into the streams the copy of each device's neurons, and the bits of all neurons that
// have spiked.
func (r *regions) begin(count int) error {
	s, c := r.s, r.s.whole
	err := errors.Join(s.beginSums(count), s.Stream.Launch(r.mark, c.lanes(), graphset.MarkArgs{
		AgentsArgs: c.neurons, State: graphset.Spike, Bits: device.Ptr(s.marks[0]),
	}.Args()...))
	if err != nil {
		return gpubatch.Mark(err)
	}
	if err := r.Barrier(func(i int) []*field.Device { return r.All[:min(i, 1)] }); err != nil {
		return err
	}
	for i := range r.All[1:] {
		if err := r.All[i+1].Fail(r.take(i + 1)); err != nil {
			return err
		}
	}
	return nil
}

// take puts into the stream of a further device the copy of its neurons.
func (r *regions) take(i int) error {
	s, t, on := r.s, r.all[i], r.All[i]
	to, at := on.Memory, t.at
	err := errors.Join(
		r.pieces(t, true, func(place, off, bytes int64) error {
			return on.Stream.Copy(to, at.pages+off, s.Memory().Arena(), place, bytes)
		}),
		on.Stream.Copy(to, at.bits[0], s.marks[0], 0, s.markBytes()),
		on.Stream.Fill(to, at.counts, 8, 0), on.Stream.Fill(to, at.tally, int64(8*s.states()), 0))
	if err != nil || s.delayed == nil {
		return errors.Join(err, on.Stream.Fill(to, at.sums, at.sumBytes, 0))
	}
	return r.slots(t, func(place, own, bytes int64) error {
		return on.Stream.Copy(to, own, s.sums, place, bytes)
	})
}

// giveBack puts into the stream of a further device the copy of its neurons into the pages, and of
// their sums of coming ticks.
func (r *regions) giveBack(i int) error {
	s, t, on := r.s, r.all[i], r.All[i]
	err := r.pieces(t, false, func(place, off, bytes int64) error {
		return on.Stream.Copy(s.Memory().Arena(), place, on.Memory, t.at.pages+off, bytes)
	})
	if err != nil || s.delayed == nil {
		return err
	}
	return r.slots(t, func(place, own, bytes int64) error {
		return on.Stream.Copy(s.sums, place, on.Memory, own, bytes)
	})
}

// slots calls f for the sums of each coming tick, with their offset on the first device and in the
// memory of the region.
func (r *regions) slots(t *region, f func(place, own, bytes int64) error) error {
	for slot := range int64(r.s.slots) {
		place := 4 * (slot*r.s.delayed.stride() + t.first)
		if err := f(place, t.at.sums+4*slot*t.at.stride, 4*t.agents); err != nil {
			return err
		}
	}
	return nil
}

// pieces calls f for the pieces of the pages of a region that are consecutive on the first device,
// with their offset there and their distance from the first page of the region. If whole is set,
// pages are copied whole, also with neurons of other regions. Otherwise the pieces are the
// variables of the neurons of the region.
func (r *regions) pieces(t *region, whole bool, f func(place, off, bytes int64) error) error {
	n, size, per := r.n, int64(r.n.Layout().PageBytes), int64(r.n.PerPage())
	frame := func(page int64) int64 { return int64(n.Memory().Frame(int(page))) }
	own := func(page int64) (first, end int64) {
		return max(page*per, t.first), min((page+1)*per, t.first+t.agents)
	}
	all := func(page int64) bool {
		first, end := own(page)
		return whole || first == page*per && end == min((page+1)*per, n.Len())
	}
	for page := t.page; page < t.page+t.pages; {
		from, off, count := frame(page), (page-t.page)*size, int64(1)
		if all(page) {
			for page+count < t.page+t.pages && all(page+count) && frame(page+count) == from+count {
				count++
			}
			if err := f(from*size, off, count*size); err != nil {
				return err
			}
			page += count
			continue
		}
		first, end := own(page)
		for v, of := range n.Layout().Vars {
			if of.Group {
				continue
			}
			bytes := int64(of.Width * of.Elem.Bytes())
			at := int64(n.Layout().Offsets[v]) + bytes*(first-page*per)
			if err := f(from*size+at, off+at, bytes*(end-first)); err != nil {
				return err
			}
		}
		page++
	}
	return nil
}

// exchange gives each device the bits of all neurons. Before the first tick the devices have them.
// The first device then waits until the others have copied their neurons from the pages.
func (r *regions) exchange(k int) error {
	if k == 0 {
		return r.Barrier(r.Everyone)
	}
	return r.spread(func(i int) (of device.Buffer, at, own, bytes int64) {
		t := r.all[i]
		return t.marks[k%2], t.bits[k%2], t.first / 8, t.bitBytes()
	})
}

func (r *regions) launch(i, k int, tick uint32, count bool) error {
	s, t, c := r.s, r.all[i], r.all[i].cohort
	bits := device.Range(t.marks[k%2], t.bits[k%2], s.markBytes())
	if err := c.stream.Launch(t.pick, field.ShapeOn(c.dev, (s.Len()+31)/32), graphset.PickArgs{
		Bits: bits, Agents: uint32(s.Len()), ActiveArgs: c.list(k % 2),
	}.Args()...); err != nil {
		return err
	}
	return c.launch(k, tick, count)
}
