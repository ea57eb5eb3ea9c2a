package graph

import (
	"context"
	"errors"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/bytestate"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/team"
)

// regions are the neurons of a network on several devices, in ticks that these make together. Each
// has consecutive neurons and, of the row of each neuron of the network, the links to its own.
// Before each tick the devices give each other the bits of their neurons that have spiked, and each
// lists all of them. The first device steps its neurons in the pages. The others have copies of the
// pages with theirs, and give these back at the end.
type regions struct {
	*crew
	s    *spiking
	mark device.Kernel
	all  []*region // by seat
}

// region is the neurons of a device.
type region struct {
	span
	links  int64 // to them
	at     regionPlaces
	cohort *cohort
	pick   device.Kernel
	marks  [2]device.Buffer // with the bits of all neurons, from the byte bits on
	bits   [2]int64
	// page is the first page of the network with a neuron of the region, and pages how many have
	// one.
	page, pages int64
}

// regionPlaces are where the memory of a region begins in that of its seat, for a device that has
// no pages.
type regionPlaces struct {
	pages, frames, active, counts, types, tally, sums int64
	bits                                              [2]int64
	offsets, columns, weights, delays, bytes          int64
	stride                                            int64 // of sums, in words
	sumBytes, weighting, delaying                     int64
}

// neuronWork is the work of a step of a neuron, in links to it, of which few carry a spike.
const neuronWork = 64

// split returns the regions of so many devices, which have about as much work each; nil: there are
// too few neurons. links returns the number of links to some neurons, for devices beside the first
// one.
func (s *spiking) split(devices int, links func(span) int64) (all []*region) {
	work := func(id int64) int64 { return id }
	if to := s.incoming(); to != nil {
		work = func(id int64) int64 { return neuronWork*id + int64(to[id]) }
	}
	for i, own := range cut(s.Len(), devices, work) {
		r := &region{span: own, page: own.first / int64(s.per)}
		r.pages = (own.first+own.agents-1)/int64(s.per) - r.page + 1
		if i > 0 {
			r.links = links(own)
		}
		r.at = s.placesOf(r)
		all = append(all, r)
	}
	return all
}

// incoming returns the number of links to the neurons before each one; nil: the links are
// generated, and all neurons have about as many.
func (s *spiking) incoming() []uint64 {
	rows := s.o.Links.Rows
	if rows == nil || s.to != nil {
		return s.to
	}
	s.to = make([]uint64, s.Len()+1)
	for _, id := range rows.Columns {
		s.to[id+1]++
	}
	for i := range s.Len() {
		s.to[i+1] += s.to[i]
	}
	return s.to
}

// expected returns the number of links to some neurons. Of generated links it is a bound, which
// more than that reach with a chance below 10^-20.
func (s *spiking) expected(own span) int64 {
	if to := s.incoming(); to != nil {
		return int64(to[own.first+own.agents] - to[own.first])
	}
	mean := float64(own.agents) * float64(s.o.Links.Degree)
	return min(s.o.Links.count(s.Len()), int64(mean+10*math.Sqrt(mean))+100)
}

// placesOf returns the places of the memory of a region.
func (s *spiking) placesOf(r *region) (at regionPlaces) {
	take := func(bytes int64) int64 {
		from := at.bytes
		at.bytes += team.Aligned(max(least, bytes))
		return from
	}
	const words = device.RangeAlign / 4
	at.stride = (r.agents + words - 1) / words * words
	at.sumBytes = 4 * r.agents
	if s.delayed != nil {
		at.sumBytes, at.delaying = int64(s.slots)*4*at.stride, r.links
	}
	if s.weighted() {
		at.weighting = 4 * r.links
	}
	at.pages, at.frames = take(r.pages*int64(s.layout.PageBytes)), take(4*int64(s.pages()))
	for i := range at.bits {
		at.bits[i] = take(s.markBytes())
	}
	at.active, at.counts, at.types = take(4*s.Len()), take(8), take(2*4*graphset.TypeWords)
	at.tally, at.sums = take(int64(8*s.states())), take(at.sumBytes)
	at.offsets, at.columns = take(8*(s.Len()+1)), take(4*r.links)
	at.weights, at.delays = take(at.weighting), take(at.delaying)
	return at
}

// weighted reports whether links have weights of their own.
func (s *spiking) weighted() bool { return s.o.Links.Rows != nil && s.o.Links.Rows.Weights != nil }

// markBytes returns the bytes of a bit for each neuron.
func (s *spiking) markBytes() int64 { return (s.Len() + 31) / 32 * 4 }

// memberBytes implements model.
func (s *spiking) memberBytes(devices int) int64 {
	if devices < 2 {
		return 0
	}
	return mostBytes(s.split(devices, s.expected))
}

// mostBytes returns the most bytes of a region beside the first one; 0: there are none.
func mostBytes(all []*region) (bytes int64) {
	for i, r := range all {
		if i > 0 {
			bytes = max(bytes, r.at.bytes)
		}
	}
	return bytes
}

// together implements model.
func (s *spiking) together() sharer {
	if s.regions == nil {
		return nil
	}
	return s.regions
}

// openRegions opens the seats of the team, and splits the links by their targets; nothing: one
// device makes all ticks.
func (s *spiking) openRegions() error {
	if s.o.Devices < 2 {
		return nil
	}
	var failed error
	found := map[int][]*region{} // by the number of devices, with as many links as they have
	c, err := s.openCrew(func(devices int) int64 {
		if found[devices] == nil {
			found[devices] = s.split(devices, func(own span) int64 {
				n, err := s.measure(own)
				failed = errors.Join(failed, err)
				return n
			})
		}
		return mostBytes(found[devices])
	})
	if err := errors.Join(err, failed); err != nil || c == nil {
		return err
	}
	r := &regions{crew: c, s: s, all: found[len(c.seats)]}
	if r.mark, err = s.dev.Kernel(graphset.Mark); err != nil {
		return err
	}
	if err := r.splitLinks(); err != nil {
		return err
	}
	s.to = nil
	for i, seat := range c.seats {
		open := r.openMember
		if i == 0 {
			open = r.openFirst
		}
		if err := seat.Fail(open(i)); err != nil {
			return err
		}
	}
	s.regions = r
	return r.sync(context.Background())
}

// openFirst makes what launches need for the neurons of the first device: they are in the pages.
func (r *regions) openFirst(int) (err error) {
	s, t := r.s, r.all[0]
	s.whole = s.all() // its links have other places, and maybe delays
	if err := s.whole.load(); err != nil {
		return err
	}
	c := *s.whole
	c.agents, c.marked, c.links.partial, c.links.lengths = t.agents, true, true, device.Ptr(s.lengths)
	c.pages = append(c.pages[:4:4], device.Uint32(uint32(t.agents)))
	t.marks, t.cohort = s.marks, &c
	return r.finish(0)
}

// openMember makes what launches need for the neurons of a member.
func (r *regions) openMember(i int) error {
	s, t, seat := r.s, r.all[i], r.seats[i]
	at, size := t.at, int64(s.layout.PageBytes)
	list := seat.Range(at.active, 4*s.Len())
	c := &cohort{
		of: s, dev: seat.Device, stream: seat.Stream, first: t.first, agents: t.agents,
		active: [2]device.Arg{list, list}, counts: seat.Range(at.counts, 8),
		types: seat.Range(at.types, 2*4*graphset.TypeWords), tally: seat.Range(at.tally, int64(8*s.states())),
		sums: seat.Memory, sumsAt: at.sums, stride: at.stride, marked: true,
		links: cohortLinks{
			offsets: seat.Range(at.offsets, 8*(s.Len()+1)), columns: seat.Range(at.columns, max(least, 4*t.links)),
			weights: seat.Range(at.weights, max(least, at.weighting)),
			delays:  seat.Range(at.delays, max(least, at.delaying)), listed: s.delayed != nil,
			lengths: seat.Range(at.counts, 8), // not read
		},
		pages: []device.Arg{
			seat.Range(at.pages, t.pages*size), seat.Range(at.frames, 4*int64(s.pages())),
			device.Uint64(uint64(size)), device.Uint32(uint32(s.per)), device.Uint32(uint32(t.agents)),
		},
	}
	frames := make([]uint32, s.pages()) // others than those of the region are not used
	for k := range t.pages {
		frames[t.page+k] = uint32(k)
	}
	if err := seat.Memory.Write(at.frames, device.Bytes(frames)); err != nil {
		return err
	}
	if s.cell.IsIzhikevich() {
		if err := seat.Memory.Write(at.types, device.Bytes(s.typeNumbers())); err != nil {
			return err
		}
	}
	t.marks, t.bits, t.cohort = [2]device.Buffer{seat.Memory, seat.Memory}, at.bits, c
	if err := c.load(); err != nil {
		return err
	}
	return r.finish(i)
}

// finish makes what the neurons of all devices need.
func (r *regions) finish(i int) (err error) {
	t := r.all[i]
	for k := range t.cohort.bits {
		t.cohort.bits[k] = device.Range(t.marks[k], t.bits[k]+t.first/8, t.bitBytes())
	}
	t.pick, err = r.seats[i].Device.Kernel(graphset.Pick)
	return err
}

// bitBytes returns the bytes of the bits of a region.
func (t *region) bitBytes() int64 { return (t.agents + 31) / 32 * 4 }

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
	err := errors.Join(s.beginSums(count), s.stream.Launch(r.mark, c.lanes(), append(c.pages[:5:5],
		device.Uint32(graphset.Spike), device.Ptr(s.marks[0]))...))
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
	if err := c.stream.Launch(t.pick, bytestate.ShapeOn(c.dev, (s.Len()+31)/32), bits,
		device.Uint32(uint32(s.Len())), c.active[k%2], c.counts, device.Uint32(uint32(k%2))); err != nil {
		return err
	}
	return c.launch(k, tick, count)
}
