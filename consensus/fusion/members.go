package fusion

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Members sets the node of each agent for later fusions; see None. In Static mode the agents are
// sorted here, on the host, in tens of nanoseconds an agent, unless they are sorted already; the
// slice is the caller's again when it returns.
func (f *Fuser) Members(ids []uint32) error {
	if len(ids) != f.opts.Agents {
		return fmt.Errorf("members of %d agents, want %d: %w", len(ids), f.opts.Agents, ErrLength)
	}
	if err := f.idle(context.Background()); err != nil {
		return err
	}
	if f.opts.Mode == Static {
		return f.sort(ids)
	}
	if err := put(f, &f.own.members, ids); err != nil {
		return err
	}
	return f.PointMembers(f.own.members, 0)
}

// PointMembers takes the members from device memory: a uint32 for each agent from the byte at off
// on, a multiple of 16, which each fusion reads anew. It needs Unsorted mode: a static membership
// is sorted on the host. b must stay open.
func (f *Fuser) PointMembers(b device.Buffer, off int64) error {
	if f.opts.Mode != Unsorted {
		return fmt.Errorf("point at members in static mode: give them with Members, or choose the mode Unsorted: %w",
			device.ErrInvalidArgument)
	}
	bytes := 4 * int64(f.opts.Agents)
	if err := check("members", b, off, bytes); err != nil {
		return err
	}
	if f.sorts() {
		f.launches = f.sorted(device.Range(b, off, bytes))
		return nil
	}
	phases := f.phases()
	f.launches = make([]launch, phases)
	for i := range f.launches {
		low, high := i*f.opts.Nodes/phases, (i+1)*f.opts.Nodes/phases
		l := launch{kernel: f.kernel, geometry: f.geometry((int64(f.opts.Agents) +
			kernels.FuseTile - 1) / kernels.FuseTile)}
		if i == 0 {
			l.flags |= kernels.FuseFirst
		}
		if i == phases-1 {
			l.flags |= kernels.FuseLast
		}
		l.list = func(flags uint32, to []device.Arg) []device.Arg {
			return (&kernels.FuseUnsortedArgs{
				Rows: f.rows, Members: device.Range(b, off, bytes), Weights: f.weights, Agents: uint32(f.opts.Agents),
				Low: uint32(low), High: uint32(high), FusedArgs: f.fused(flags),
			}).AppendTo(to)
		}
		f.launches[i] = l
	}
	return nil
}

// fused returns the arguments of an unsorted fusion about its nodes.
func (f *Fuser) fused(flags uint32) kernels.FusedArgs {
	return kernels.FusedArgs{
		Nodes: uint32(f.opts.Nodes), Dim: uint32(f.opts.Dim), Flags: flags, Sums: device.Ptr(f.sums),
		Tallies: device.Ptr(f.tallies), Scratch: device.Ptr(f.scratch), Sequence: f.sequence,
		Result: device.Mapped(f.result, 0, f.result.Size()),
	}
}

// sorted is an unsorted fusion that sorts the agents by their node first, in four launches over the
// memory of f.sorting.
func (f *Fuser) sorted(members device.Arg) []launch {
	o := &f.opts
	agents, nodes := uint32(o.Agents), uint32(o.Nodes)
	counts, numbers, order := device.Ptr(f.sorting.counts), device.Ptr(f.sorting.numbers), device.Ptr(f.sorting.order)
	blocks := func(work, each int) device.Geometry { return f.geometry((int64(work) + int64(each) - 1) / int64(each)) }
	const some = 4 * kernels.FuseMaxBlock // elements that a block has in flight
	shares := (o.Agents + kernels.FuseShare - 1) / kernels.FuseShare
	return []launch{
		{
			kernel: f.count, geometry: blocks(o.Agents, kernels.FuseTile),
			list: func(_ uint32, to []device.Arg) []device.Arg {
				return (&kernels.FuseCountArgs{
					Members: members, Agents: agents, Nodes: nodes, Counts: counts, Numbers: numbers,
					Scratch: device.Ptr(f.scratch),
				}).AppendTo(to)
			},
		},
		{kernel: f.starts, geometry: blocks(o.Nodes, 2*some), list: func(_ uint32, to []device.Arg) []device.Arg {
			return (&kernels.FuseStartsArgs{Nodes: nodes, Counts: counts}).AppendTo(to)
		}},
		{kernel: f.place, geometry: blocks(o.Agents, some), list: func(_ uint32, to []device.Arg) []device.Arg {
			return (&kernels.FusePlaceArgs{
				Members: members, Agents: agents, Nodes: nodes, Starts: counts, Numbers: numbers, Order: order,
			}).AppendTo(to)
		}},
		{
			kernel: f.kernel, flags: kernels.FuseLast, geometry: f.geometry(f.blocks(shares)),
			list: func(flags uint32, to []device.Arg) []device.Arg {
				return (&kernels.FuseWalkArgs{
					Rows: f.rows, Members: members, Weights: f.weights, Order: order, Starts: counts, Agents: agents,
					FusedArgs: f.fused(flags),
				}).AppendTo(to)
			},
		},
	}
}

// sortAgents as the number of phases means that agents are sorted.
const sortAgents = -1

// sorts reports whether an unsorted fusion sorts the agents by their node on the device, at each
// fusion. Grouping tiles of agents saves additions as long as a tile has several agents of a node.
// With 32 times as many nodes as a tile has agents, 98 % of a tile's agents are alone, and nearly
// every row goes to memory value by value. Sorting costs about 30 bytes an agent and one addition
// to a counter, and then a node costs one addition of a row, so it pays when nodes have enough
// agents. With fewer agents than nodes most counters are 0.
func (f *Fuser) sorts() bool {
	const many = 32 * kernels.FuseTile
	o := &f.opts
	if o.Mode != Unsorted || o.Agents > kernels.FuseHead {
		return false
	}
	return o.phases == sortAgents || o.phases == 0 && o.Nodes >= many && o.Agents >= o.Nodes
}

// phases returns the number of launches of an unsorted fusion, each for a range of the nodes.
// Additions to sums that are not in the cache read and write 32 bytes of memory for each 32 added;
// a range that stays in it pays that once. So it is worth reading the members again for each range,
// when a node gets several agents.
func (f *Fuser) phases() int {
	const (
		most     = 16
		returned = 4 // agents a node on the average, from which on ranges pay
	)
	if f.opts.phases > 0 {
		return min(f.opts.phases, f.opts.Nodes)
	}
	cache := f.dev.Properties().L2Bytes * 2 / 3 // the rest is for rows on their way
	if cache == 0 || f.opts.Agents < returned*f.opts.Nodes {
		return 1
	}
	return int(min((f.sums.Size()+cache-1)/cache, most))
}

func (f *Fuser) sort(ids []uint32) error {
	p := newPlan(ids, f.opts.Nodes, f.opts.runRows)
	f.launches = nil
	f.outside = Report{Nobody: p.nobody, Invalid: p.invalid}
	order, flags := device.Ptr(f.scratch), uint32(0)
	if p.order != nil {
		if err := put(f, &f.own.members, p.order); err != nil {
			return err
		}
		order, flags = device.Ptr(f.own.members), kernels.FuseOrder
	}
	var table []uint32
	for _, level := range p.levels {
		table = append(table, words(level)...)
	}
	if err := put(f, &f.own.runs, table); err != nil {
		return err
	}
	dim := int64(f.opts.Dim)
	if err := f.reserve(&f.own.partSums, 4*int64(p.parts)*dim); err != nil {
		return err
	}
	if err := f.reserve(&f.own.partTallies, 8*kernels.FuseTallyPair*int64(p.parts)); err != nil {
		return err
	}
	at := int64(0)
	launches := make([]launch, len(p.levels))
	for i, level := range p.levels {
		bytes := kernels.FuseRunBytes * int64(len(level))
		l := launch{kernel: f.kernel, flags: flags, geometry: f.geometry(f.blocks(len(level)))}
		args := kernels.FuseSortedArgs{
			Order: order, Runs: device.Range(f.own.runs, at, bytes), Count: uint32(len(level)), Dim: uint32(dim),
			Sums: device.Ptr(f.sums), Tallies: device.Ptr(f.tallies), PartSums: device.Ptr(f.own.partSums),
			PartTallies: device.Ptr(f.own.partTallies), Scratch: device.Ptr(f.scratch),
			Result: device.Mapped(f.result, 0, f.result.Size()),
		}
		if i > 0 {
			l.kernel, l.flags = f.sum, kernels.FuseParts
			args.Order = device.Ptr(f.scratch)
		}
		l.list = func(flags uint32, to []device.Arg) []device.Arg {
			args.Rows, args.Weights, args.Flags, args.Sequence = f.rows, f.weights, flags, f.sequence
			if i > 0 {
				args.Rows, args.Weights = device.Ptr(f.own.partSums), device.Ptr(f.scratch)
			}
			return args.AppendTo(to)
		}
		if i == len(p.levels)-1 {
			l.flags |= kernels.FuseLast
		}
		at += bytes
		launches[i] = l
	}
	f.launches = launches
	return nil
}

// blocks returns the number of blocks in which each team has a run. A team has a lane for each 16
// bytes of a row, up to a warp.
func (f *Fuser) blocks(runs int) int64 {
	vectors, lanes := int64(f.opts.Dim)*f.opts.Type.Bytes()/16, int64(1)
	for lanes < min(vectors, 32) {
		lanes *= 2
	}
	return (int64(runs)*lanes + kernels.FuseMaxBlock - 1) / kernels.FuseMaxBlock
}

// geometry returns the shape of a launch with work for blocks. A GPU gets several times the blocks
// that run at once, so that unequal work evens out, but few enough that their contention on one
// counter does not show. The host gets one block a core for Unsorted, whose blocks each read all
// members.
func (f *Fuser) geometry(blocks int64) device.Geometry {
	if f.opts.Geometry != (device.Geometry{}) {
		return f.opts.Geometry
	}
	perCore := int64(16)
	if p := f.dev.Properties(); p.ComputeMajor == 0 {
		perCore = 4
		if f.opts.Mode == Unsorted {
			perCore, blocks = 1, int64(p.Multiprocessors)
		}
	}
	most := perCore * int64(f.dev.Properties().Multiprocessors)
	return device.Geometry{Grid: int(min(max(blocks, 1), most)), Block: kernels.FuseMaxBlock}
}
