package graph

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/gpuagents/edges"
	"github.com/exoswarm/exoswarm/gpuagents/field"
)

// parts are the agents of an epidemic on several devices during ticks. Each device has consecutive
// agents, with their rows of links and their states, and a bit for each infected agent of the
// network. After each tick the devices exchange the bits of their agents. The first device steps
// its agents in the pages. The others copy their states into the pages at the end.
type parts struct {
	*devices
	e   *epidemic
	all []*part // by device
}

type part struct {
	span
	links      int64
	at         places
	ill        [2]device.Buffer // with the bits of all agents, from the byte bits on
	bits       [2]int64
	args       graphset.SIRArgs // of a tick, but for what differs from tick to tick
	mark, step device.Kernel
}

// places are the offsets of a part in the scratch memory of a further device.
type places struct {
	states, frame                       int64
	bits                                [2]int64
	misses, offsets, columns, weights   int64
	tally, bytes                        int64
	offsetBytes, columnBytes, weighting int64
}

// split returns a part for each device, with about equal work; nil: there are too few agents.
func (e *epidemic) split(devices int) (all []*part) {
	l := e.o.Links
	for _, s := range cut(e.Len(), devices, func(id int64) int64 { return 2*id + l.Before(id) }) {
		p := &part{span: s, links: l.Before(s.first+s.agents) - l.Before(s.first)}
		p.at = e.placesOf(p)
		all = append(all, p)
	}
	return all
}

func (e *epidemic) placesOf(p *part) (at places) {
	take := func(bytes int64) int64 {
		from := at.bytes
		at.bytes += field.Aligned(max(edges.MinBytes, bytes))
		return from
	}
	at.columnBytes = 4 * p.links
	if r := e.o.Links.Rows; r != nil {
		if at.offsetBytes = 8 * (p.agents + 1); r.Weights != nil {
			at.weighting = at.columnBytes
		}
	}
	at.states, at.frame, at.misses = take(p.agents), take(4), take(4*graphset.Gaps)
	for i := range at.bits {
		at.bits[i] = take(e.bits())
	}
	at.tally, at.offsets = take(8*graphset.States), take(at.offsetBytes)
	at.columns, at.weights = take(at.columnBytes), take(at.weighting)
	return at
}

func (e *epidemic) peerBytes(devices int) (bytes int64) {
	if devices < 2 {
		return 0
	}
	for i, p := range e.split(devices) {
		if i > 0 {
			bytes = max(bytes, p.at.bytes)
		}
	}
	return bytes
}

// PeerBytes returns the memory of each further device for a number of devices, in bytes; 0: they
// are too many, or the options do not fit together.
func PeerBytes(cell *cells.Addressed, o Options, devices int) int64 {
	n, err := plan(cell, o)
	if err != nil {
		return 0
	}
	return n.model.peerBytes(devices)
}

// openParts opens the devices, and copies the links of each part. e.parts stays nil if one device
// makes all ticks.
func (e *epidemic) openParts() error {
	c, err := e.openDevices(e.peerBytes)
	if err != nil || c == nil {
		return err
	}
	p := &parts{devices: c, e: e, all: e.split(len(c.All))}
	p.openFirst()
	for i, s := range c.All[1:] {
		if err := s.Fail(p.openPeer(i + 1)); err != nil {
			return err
		}
	}
	e.parts = p
	return p.Sync(context.Background())
}

func (p *parts) openFirst() {
	e, t := p.e, p.all[0]
	t.mark, t.step, t.ill = e.mark, e.step, e.ill
	t.args = e.sirArgs(0, false)
	t.args.AgentsArgs = e.agentsArgs()
	t.args.Agents = uint32(t.agents)
}

// openPeer makes the arguments of the part of a further device, and copies its links.
func (p *parts) openPeer(i int) (err error) {
	e, t, s := p.e, p.all[i], p.All[i]
	for name, to := range map[string]*device.Kernel{graphset.Mark: &t.mark, graphset.SIR: &t.step} {
		if *to, err = s.Device.Kernel(name); err != nil {
			return err
		}
	}
	t.ill, t.bits = [2]device.Buffer{s.Memory, s.Memory}, t.at.bits
	// Kernels read four states at a time if the agents of a page are a multiple.
	a, size := &t.args, field.Aligned(t.agents)
	*a = e.sirArgs(0, false)
	a.Misses, a.Tally = s.Range(t.at.misses, 4*graphset.Gaps), s.Range(t.at.tally, 8*graphset.States)
	a.Offsets = s.Range(t.at.offsets, max(edges.MinBytes, t.at.offsetBytes))
	a.Columns = s.Range(t.at.columns, max(edges.MinBytes, t.at.columnBytes))
	a.Weights = s.Range(t.at.weights, max(edges.MinBytes, t.at.weighting))
	a.Pages, a.Frames = s.Range(t.at.states, size), s.Range(t.at.frame, 4) // one page, in frame 0
	a.PageBytes, a.Per, a.Agents, a.FirstID = uint64(size), uint32(size), uint32(t.agents), uint32(t.first)
	if err := errors.Join(s.Memory.Write(t.at.frame, device.Bytes([]uint32{0})),
		s.Memory.Write(t.at.misses, device.Bytes(misses(e.infection)))); err != nil {
		return err
	}
	begin := e.o.Links.Before(t.first)
	if r := e.o.Links.Rows; r != nil {
		own := make([]uint64, t.agents+1)
		for k := range own {
			own[k] = r.Offsets[t.first+int64(k)] - uint64(begin)
		}
		if err := s.Memory.Write(t.at.offsets, device.Bytes(own)); err != nil {
			return err
		}
	}
	if err := s.Stream.Copy(s.Memory, t.at.columns, e.columns, 4*begin, t.at.columnBytes); err != nil {
		return err
	}
	if t.at.weighting == 0 {
		return nil
	}
	return s.Stream.Copy(s.Memory, t.at.weights, e.weights, 4*begin, t.at.weighting)
}

func (p *parts) tick(ctx, wait context.Context, tick uint32, count, most int) (tally []uint64, err error) {
	return p.run(wait, func() error { return p.put(ctx, wait, tick, count, most) },
		func(i int) int64 { return p.all[i].at.tally })
}

func (p *parts) put(ctx, wait context.Context, tick uint32, count, most int) error {
	for i := range p.all {
		if err := p.begin(i); err != nil {
			return err
		}
	}
	if err := p.Steps(ctx, wait, count, max(1, most/2), func(k int) error { return p.exchange(k % 2) },
		func(i, k int) error { return p.launch(i, k, tick+uint32(k), k == count-1) }); err != nil {
		return err
	}
	for i, t := range p.all[1:] {
		s := p.All[i+1]
		err := p.e.Columns.Pieces(t.first, t.agents, func(place, off, bytes int64) error {
			return s.Stream.Copy(p.e.Memory().Arena(), place, s.Memory, t.at.states+off, bytes)
		})
		if err != nil {
			return s.Fail(err)
		}
	}
	return nil
}

// begin puts into the streams the copy of the states to a further device, and the kernel that marks
// infected agents.
func (p *parts) begin(i int) error {
	t, s := p.all[i], p.All[i]
	if i > 0 {
		err := p.e.Columns.Pieces(t.first, t.agents, func(place, off, bytes int64) error {
			return s.Stream.Copy(s.Memory, t.at.states+off, p.e.Memory().Arena(), place, bytes)
		})
		if err == nil {
			err = s.Stream.Fill(s.Memory, t.at.tally, 8*graphset.States, 0)
		}
		if err != nil {
			return s.Fail(err)
		}
	}
	return s.Fail(s.Stream.Launch(t.mark, p.lanes(i), graphset.MarkArgs{
		AgentsArgs: t.args.AgentsArgs, State: graphset.Infected, Bits: p.own(t, 0),
	}.Args()...))
}

func (p *parts) lanes(i int) device.Geometry {
	return field.ShapeOn(p.All[i].Device, (p.all[i].agents+3)/4)
}

func (t *part) bitBytes() int64 { return (t.agents + 31) / 32 * 4 }

// own returns the bits of the agents of a part. bitsOf returns the bits of all agents on its
// device.
func (p *parts) own(t *part, which int) device.Arg {
	return device.Range(t.ill[which], t.bits[which]+t.first/8, t.bitBytes())
}

func (p *parts) bitsOf(t *part, which int) device.Arg {
	return device.Range(t.ill[which], t.bits[which], p.e.bits())
}

func (p *parts) exchange(which int) error {
	return p.spread(func(i int) (of device.Buffer, at, own, bytes int64) {
		t := p.all[i]
		return t.ill[which], t.bits[which], t.first / 8, t.bitBytes()
	})
}

func (p *parts) launch(i, k int, tick uint32, count bool) error {
	t, s := p.all[i], p.All[i]
	args := t.args
	args.Infected, args.Next, args.Tick, args.Count = p.bitsOf(t, k%2), p.own(t, 1-k%2), tick, device.Bit(count)
	return s.Fail(s.Stream.Launch(t.step, sirShape(s.Device, t.agents), args.Args()...))
}

// Bytes that a tick reads in a second: on an H100 (RFC 0053), and on the host device.
const (
	bytesOnGPU  = 2.5e12
	bytesOnHost = 2e8
)

func (p *parts) gains(count int) bool {
	rate := bytesOnGPU
	if p.e.Device().Properties().ComputeMajor == 0 {
		rate = bytesOnHost
	}
	return gains(p.Link(), rate, p.e.Len(), p.e.o.Links.Count(p.e.Len()), len(p.All), count)
}

// gains is parts.gains for a number of agents and links.
func gains(link field.Link, rate float64, agents, links int64, devices, count int) bool {
	took := func(parts int) float64 {
		return max(float64(4*links+2*agents)/float64(parts)/rate, launchTime.Seconds())
	}
	others := float64(agents) * float64(devices-1) / float64(devices) // that one device does not have
	exchange := link.Barrier.Seconds() + others/8/link.Bytes
	return float64(count)*(took(devices)+exchange)+link.Fixed(2*others) < float64(count)*took(1)
}
