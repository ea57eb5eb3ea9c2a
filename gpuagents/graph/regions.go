package graph

import (
	"context"
	"errors"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/field"
)

// regions are the neurons of a network on several devices during ticks. Each device has consecutive
// neurons, and all links to them, by source. Before each tick the devices exchange a bit for each
// neuron that has spiked, and each device lists all of these neurons. The first device steps its
// neurons in the pages. The others step copies of their pages, and copy them back at the end.
type regions struct {
	*devices
	s    *spiking
	mark device.Kernel
	all  []*region // by device
}

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

// regionPlaces are the offsets of a region in the scratch memory of a further device.
type regionPlaces struct {
	pages, frames, active, counts, types, tally, sums int64
	bits                                              [2]int64
	offsets, columns, weights, delays, bytes          int64
	stride                                            int64 // of sums, in words
	sumBytes, weighting, delaying                     int64
}

// neuronWork is the work of stepping a neuron, in units of incoming links. Few links carry a spike.
const neuronWork = 64

// split returns a region for each device, with about equal work; nil: there are too few neurons.
// links returns the number of links to the neurons of a further device.
func (s *spiking) split(devices int, links func(span) int64) (all []*region) {
	work := func(id int64) int64 { return id }
	if to := s.incoming(); to != nil {
		work = func(id int64) int64 { return neuronWork*id + int64(to[id]) }
	}
	for i, own := range cut(s.Len(), devices, work) {
		r := &region{span: own, page: own.first / int64(s.PerPage())}
		r.pages = (own.first+own.agents-1)/int64(s.PerPage()) - r.page + 1
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

// expected returns the number of links to some neurons. For generated links it is a bound that is
// exceeded with a chance below 10^-20.
func (s *spiking) expected(own span) int64 {
	if to := s.incoming(); to != nil {
		return int64(to[own.first+own.agents] - to[own.first])
	}
	mean := float64(own.agents) * float64(s.o.Links.Degree)
	return min(s.o.Links.Count(s.Len()), int64(mean+10*math.Sqrt(mean))+100)
}

func (s *spiking) placesOf(r *region) (at regionPlaces) {
	take := func(bytes int64) int64 {
		from := at.bytes
		at.bytes += field.Aligned(max(edges.MinBytes, bytes))
		return from
	}
	const words = device.RangeAlign / 4
	at.stride = (r.agents + words - 1) / words * words
	at.sumBytes = 4 * r.agents
	if s.delayed != nil {
		at.sumBytes, at.delaying = int64(s.slots)*4*at.stride, r.links
	}
	if s.o.Links.Weighted() {
		at.weighting = 4 * r.links
	}
	at.pages, at.frames = take(r.pages*int64(s.Layout().PageBytes)), take(4*int64(s.Pages()))
	for i := range at.bits {
		at.bits[i] = take(s.markBytes())
	}
	at.active, at.counts, at.types = take(4*s.Len()), take(8), take(2*4*graphset.TypeWords)
	at.tally, at.sums = take(int64(8*s.states())), take(at.sumBytes)
	at.offsets, at.columns = take(8*(s.Len()+1)), take(4*r.links)
	at.weights, at.delays = take(at.weighting), take(at.delaying)
	return at
}

func (s *spiking) markBytes() int64 { return (s.Len() + 31) / 32 * 4 }

func (s *spiking) peerBytes(devices int) int64 {
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

func (s *spiking) together() sharer {
	if s.regions == nil {
		return nil
	}
	return s.regions
}

// openRegions opens the devices, and splits the links by target. s.regions stays nil if one device
// makes all ticks.
func (s *spiking) openRegions() error {
	if s.o.Devices < 2 {
		return nil
	}
	var failed error
	found := map[int][]*region{} // by the number of devices, with as many links as they have
	c, err := s.openDevices(func(devices int) int64 {
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
	r := &regions{devices: c, s: s, all: found[len(c.All)]}
	if r.mark, err = s.Device().Kernel(graphset.Mark); err != nil {
		return err
	}
	if err := r.splitLinks(); err != nil {
		return err
	}
	s.to = nil
	for i, on := range c.All {
		open := r.openPeer
		if i == 0 {
			open = r.openFirst
		}
		if err := on.Fail(open(i)); err != nil {
			return err
		}
	}
	s.regions = r
	return r.Sync(context.Background())
}

// openFirst makes the arguments of launches for the first device, whose neurons are in the pages.
func (r *regions) openFirst(int) (err error) {
	s, t := r.s, r.all[0]
	s.whole = s.all() // its links have other offsets, and may have delays
	if err := s.whole.load(); err != nil {
		return err
	}
	c := *s.whole
	c.agents, c.marked, c.links.partial, c.links.lengths = t.agents, true, true, device.Ptr(s.lengths)
	c.neurons.Agents = uint32(t.agents)
	t.marks, t.cohort = s.marks, &c
	return r.finish(0)
}

// openPeer makes the arguments of launches for a further device.
func (r *regions) openPeer(i int) error {
	s, t, on := r.s, r.all[i], r.All[i]
	at, size := t.at, int64(s.Layout().PageBytes)
	list := on.Range(at.active, 4*s.Len())
	c := &cohort{
		of: s, dev: on.Device, stream: on.Stream, first: t.first, agents: t.agents,
		active: [2]device.Arg{list, list}, counts: on.Range(at.counts, 8),
		types: on.Range(at.types, 2*4*graphset.TypeWords), tally: on.Range(at.tally, int64(8*s.states())),
		sums: on.Memory, sumsAt: at.sums, stride: at.stride, marked: true,
		links: cohortLinks{
			offsets: on.Range(at.offsets, 8*(s.Len()+1)), columns: on.Range(at.columns, max(edges.MinBytes, 4*t.links)),
			weights: on.Range(at.weights, max(edges.MinBytes, at.weighting)),
			delays:  on.Range(at.delays, max(edges.MinBytes, at.delaying)), listed: s.delayed != nil,
			lengths: on.Range(at.counts, 8), // not read
		},
		neurons: graphset.AgentsArgs{PagesArgs: graphset.PagesArgs{
			Pages: on.Range(at.pages, t.pages*size), Frames: on.Range(at.frames, 4*int64(s.Pages())),
			PageBytes: uint64(size), Per: uint32(s.PerPage()),
		}, Agents: uint32(t.agents)},
	}
	frames := make([]uint32, s.Pages()) // entries of other pages are not used
	for k := range t.pages {
		frames[t.page+k] = uint32(k)
	}
	if err := on.Memory.Write(at.frames, device.Bytes(frames)); err != nil {
		return err
	}
	if s.cell.IsIzhikevich() {
		if err := on.Memory.Write(at.types, device.Bytes(s.typeNumbers())); err != nil {
			return err
		}
	}
	t.marks, t.bits, t.cohort = [2]device.Buffer{on.Memory, on.Memory}, at.bits, c
	if err := c.load(); err != nil {
		return err
	}
	return r.finish(i)
}

func (r *regions) finish(i int) (err error) {
	t := r.all[i]
	for k := range t.cohort.bits {
		t.cohort.bits[k] = device.Range(t.marks[k], t.bits[k]+t.first/8, t.bitBytes())
	}
	t.pick, err = r.All[i].Device.Kernel(graphset.Pick)
	return err
}

func (t *region) bitBytes() int64 { return (t.agents + 31) / 32 * 4 }
