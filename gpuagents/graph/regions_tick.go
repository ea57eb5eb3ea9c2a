package graph

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/bytestate"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/team"
)

// tick implements sharer.
func (r *regions) tick(ctx, wait context.Context, tick uint32, count, most int) (tally []uint64, err error) {
	if err := r.move(ctx, wait, tick, count, most); err != nil {
		return nil, errors.Join(err, r.sync(wait))
	}
	if err := r.sync(wait); err != nil {
		return nil, err
	}
	return r.tallies(func(i int) int64 { return r.all[i].at.tally })
}

// move puts the work of ticks into the streams.
func (r *regions) move(ctx, wait context.Context, tick uint32, count, most int) error {
	if err := r.begin(count); err != nil {
		return err
	}
	if err := r.each(ctx, wait, count, most, r.exchange, func(i, k int) error {
		err := r.seats[i].Fail(r.launch(i, k, tick+uint32(k), k == count-1))
		if i == len(r.all)-1 && r.s.delayed != nil {
			r.s.delayed.advance()
		}
		return err
	}); err != nil {
		return err
	}
	for i := range r.seats[1:] {
		if err := r.seats[i+1].Fail(r.giveBack(i + 1)); err != nil {
			return err
		}
	}
	return nil
}

// begin puts into the streams what gives each device the state of its neurons, and the bits of all
// that have spiked.
func (r *regions) begin(count int) error {
	s, c := r.s, r.s.whole
	err := errors.Join(s.beginSums(count), s.stream.Launch(r.mark, c.lanes(), graphset.MarkArgs{
		AgentsArgs: c.neurons, State: graphset.Spike, Bits: device.Ptr(s.marks[0]),
	}.Args()...))
	if err != nil {
		return fault.Mark(err)
	}
	if err := team.Meet(r.seats, func(i int) []*team.Seat { return r.seats[:min(i, 1)] }); err != nil {
		return err
	}
	for i := range r.seats[1:] {
		if err := r.seats[i+1].Fail(r.take(i + 1)); err != nil {
			return err
		}
	}
	return nil
}

// take puts into the stream of a member what copies the state of its neurons to it.
func (r *regions) take(i int) error {
	s, t, seat := r.s, r.all[i], r.seats[i]
	to, at := seat.Memory, t.at
	err := errors.Join(
		r.pieces(t, true, func(place, off, bytes int64) error {
			return seat.Stream.Copy(to, at.pages+off, s.memory.Arena(), place, bytes)
		}),
		seat.Stream.Copy(to, at.bits[0], s.marks[0], 0, s.markBytes()),
		seat.Stream.Fill(to, at.counts, 8, 0), seat.Stream.Fill(to, at.tally, int64(8*s.states()), 0))
	if err != nil || s.delayed == nil {
		return errors.Join(err, seat.Stream.Fill(to, at.sums, at.sumBytes, 0))
	}
	return r.slots(t, func(place, own, bytes int64) error {
		return seat.Stream.Copy(to, own, s.sums, place, bytes)
	})
}

// giveBack puts into the stream of a member what copies the state of its neurons to the pages, and
// their sums of the ticks to come.
func (r *regions) giveBack(i int) error {
	s, t, seat := r.s, r.all[i], r.seats[i]
	err := r.pieces(t, false, func(place, off, bytes int64) error {
		return seat.Stream.Copy(s.memory.Arena(), place, seat.Memory, t.at.pages+off, bytes)
	})
	if err != nil || s.delayed == nil {
		return err
	}
	return r.slots(t, func(place, own, bytes int64) error {
		return seat.Stream.Copy(s.sums, place, seat.Memory, own, bytes)
	})
}

// slots calls f for the sums of each tick to come, with the place of those of the region on the
// first device and in the memory of the region.
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
// with their place there and their distance from the first page of the region. whole says that
// pages are whole also where they have neurons of others. Else they are the variables of the
// neurons of the region.
func (r *regions) pieces(t *region, whole bool, f func(place, off, bytes int64) error) error {
	n, size, per := r.n, int64(r.n.layout.PageBytes), int64(r.n.per)
	frame := func(page int64) int64 { return int64(n.memory.Frame(int(page))) }
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
		for v, of := range n.layout.Vars {
			if of.Group {
				continue
			}
			bytes := int64(of.Width * of.Elem.Bytes())
			at := int64(n.layout.Offsets[v]) + bytes*(first-page*per)
			if err := f(from*size+at, off+at, bytes*(end-first)); err != nil {
				return err
			}
		}
		page++
	}
	return nil
}

// exchange gives each device the bits of all neurons. Before the first tick they have them, and the
// first device waits until the others have copied their neurons.
func (r *regions) exchange(k int) error {
	if k == 0 {
		return team.Meet(r.seats, r.everyone)
	}
	return r.spread(func(i int) (of device.Buffer, at, own, bytes int64) {
		t := r.all[i]
		return t.marks[k%2], t.bits[k%2], t.first / 8, t.bitBytes()
	})
}

// launch puts tick number k of a region into its stream.
func (r *regions) launch(i, k int, tick uint32, count bool) error {
	s, t, c := r.s, r.all[i], r.all[i].cohort
	bits := device.Range(t.marks[k%2], t.bits[k%2], s.markBytes())
	if err := c.stream.Launch(t.pick, bytestate.ShapeOn(c.dev, (s.Len()+31)/32), graphset.PickArgs{
		Bits: bits, Agents: uint32(s.Len()), ActiveArgs: c.list(k % 2),
	}.Args()...); err != nil {
		return err
	}
	return c.launch(k, tick, count)
}
