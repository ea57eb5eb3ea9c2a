package agents

import (
	"context"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Fuse returns the knowledge of the agents as they are now: the embeddings of all agents, which are
// the units of a gru or the potential of a leaky, in nodes by group, by vote or in one node; see
// swarms.Fuse. An agent has weight 1; an agent that has never stepped has weight 0 and is not
// counted. The nodes equal, bit for bit, one fusion.Nodes.Accumulate of all agents in the order of
// their ids, on every device and for every location of their pages. An embedding with a NaN or an
// infinity is left out.
//
// Fuse changes nothing. Agents that are all on the device are fused in one pass, which needs up to
// 0.3 bytes of the device for each agent, and by vote four bytes. If not all are on the device, or
// the device lacks that room, agents are fused window by window in up to 48 MiB of the device and
// of host memory. When ctx ends, this returns before it has read all pages. By vote the host sorts
// the agents, in some nanoseconds each.
func (a *Agents) Fuse(ctx context.Context, by string, nodes int) (fusion.Nodes, error) {
	n, _, err := a.FuseParts(ctx, &gpubatch.Splitter{}, swarms.Fuse{By: by, Nodes: nodes}, FuseWindow)
	return n, err
}

// FuseWindow bounds the device memory, in bytes, for the sums of the runs of a window: windows of a
// gru of 8 units have 97 million agents, by vote 7.7 million. With less, a launch has too few runs
// to fill a GPU.
const FuseWindow = 32 << 20

// Nodes returns the number of nodes of a fusion. ErrInvalid: the swarm cannot have that fusion.
func (a *Agents) Nodes(f swarms.Fuse) (int, error) {
	if err := f.Validate(); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch {
	case f.By == swarms.ByVote:
		return a.cell.Candidates, nil
	case f.By == swarms.ByAll:
		return 1, nil
	case f.Nodes > a.of:
		return 0, fmt.Errorf("%w: fuse: nodes %d: the swarm has %d groups: use at most as many", ErrInvalid, f.Nodes,
			a.of)
	case f.Nodes == 0:
		return a.of, nil
	}
	return f.Nodes, nil
}

// OwnNodes returns the nodes that these agents may be in, out of nodes of the swarm: n from number
// first on.
func (a *Agents) OwnNodes(by string, nodes int) (first, n int) {
	if by != swarms.ByGroup {
		return 0, nodes
	}
	first = a.first * nodes / a.of
	return first, (a.first+a.groups-1)*nodes/a.of - first + 1
}

// segment is a range of agents of one node in a window: n agents from id or position first on.
type segment struct{ node, first, n int }

type fusionRun struct {
	a               *Agents
	by              string
	all, first      int // nodes of the swarm, and the first node of these agents
	nodes           fusion.Nodes
	variable, width int // variable of the embedding on the device, and its width with the padding of a gru
	bf16            bool
	window          int // maximum number of agents
	chains          []*Chain

	// Of the window: the votes of its agents, segments, and the runs of the segments.
	votes    []byte
	order    []uint32
	segments []segment
	runs     []uint32
	io       [4]gpubatch.Buffer // order, runs, sums, counts
	sums     []float32
	counts   []uint32
}

// FuseParts is Fuse for the nodes of OwnNodes. Windows have at most the given bytes, and are split
// if the device lacks memory; halved is the number of splits.
func (a *Agents) FuseParts(
	ctx context.Context, parts *gpubatch.Splitter, want swarms.Fuse, bytes int64,
) (_ fusion.Nodes, halved int, err error) {
	if a.inconsistent != nil {
		return fusion.Nodes{}, 0, a.inconsistent
	}
	all, err := a.Nodes(want)
	if err != nil {
		return fusion.Nodes{}, 0, err
	}
	first, n := a.OwnNodes(want.By, all)
	vars, width := a.StateVars()
	of := a.layout.Vars[vars[0]]
	f := &fusionRun{
		a:        a,
		by:       want.By,
		all:      all,
		first:    first,
		variable: vars[0],
		width:    of.Width,
		bf16:     of.Elem == kernels.BF16,
		chains:   make([]*Chain, n),
	}
	if a.cell.Cell.Name != "leaky" {
		f.width /= 2 // the inputs follow the units
	}
	f.nodes = fusion.Nodes{
		Dim:     width,
		Sums:    make([]float32, n*width),
		Weights: make([]uint64, n),
		Counts:  make([]uint64, n),
	}
	run := int64(4*f.width + 4 + 8) // its sum, its count and its place
	if f.by == swarms.ByVote {
		run += 4 * fusion.RunRows
	}
	f.window = int(max(1, bytes/run)) * fusion.RunRows
	defer func() {
		if cerr := f.close(); err == nil {
			err = cerr
		}
	}()
	if a.memory.Resident() && !parts.Reduced && bytes >= FuseWindow {
		if done, err := f.fuseWhole(ctx); done || err != nil {
			return f.nodes, 0, err
		}
	}
	a.memory.Forward() // runs continue in the next page
	sets := a.memory.All()
	per := int64(a.layout.Agents * a.layout.Slots)
	err = a.memory.Each(ctx, sets, pages.SweepRead, func(i int) error {
		pages := sets[i].Pages
		a.memory.SetAbsent(pages)
		if err := a.memory.FlushFrames(a.frames); err != nil {
			return gpubatch.Failed(err)
		}
		first := int64(pages[0]) * per
		last := min(a.n, first+int64(len(pages))*per)
		again, err := parts.Each(int(last-first), func(from, most int) (int, error) {
			if err := context.Cause(ctx); err != nil {
				return from, err
			}
			end := from + min(most, f.window)
			return end, f.add(context.WithoutCancel(ctx), int(first)+from, int(first)+end)
		}, f.trim)
		halved += again
		return err
	})
	if err != nil {
		return fusion.Nodes{}, halved, err
	}
	for node := range f.chains {
		f.finish(node)
	}
	return f.nodes, halved, nil
}

// add adds the agents of a window to their nodes. An ErrNoMemory has changed nothing.
func (f *fusionRun) add(ctx context.Context, from, to int) error {
	if err := f.cut(from, to); err != nil {
		return err
	}
	n := len(f.runs) / 2
	if n == 0 {
		return nil
	}
	a, rows := f.a, 4*f.width
	for i, bytes := range [4]int{max(4, 4*len(f.order)), 8 * n, rows * n, 4 * n} {
		if err := f.io[i].Grow(a.dev, bytes, "fusion"); err != nil {
			return gpubatch.AllocError(err)
		}
	}
	if err := f.launch(ctx, n); err != nil {
		return fmt.Errorf("%w: fuse agents %d to %d: %w", gpubatch.ErrDevice, from, to-1, err)
	}
	i := 0
	for _, s := range f.segments {
		c := f.chains[s.node]
		for left := s.n; left > 0; i++ {
			took := int(f.runs[2*i+1])
			left -= took
			f.nodes.Counts[s.node] += uint64(f.counts[i])
			sum := f.sums[i*f.width:][:f.width]
			if c.Rows += took; c.Rows < fusion.RunRows {
				c.Run = append(c.Run[:0], sum...)
				continue
			}
			c.Rows = 0
			c.Push(0, sum)
		}
	}
	if f.by == swarms.ByGroup {
		for _, s := range f.segments[:len(f.segments)-1] { // the node of the last segment may continue
			f.finish(s.node)
		}
	}
	return nil
}

// launch adds up the runs of a window. The first run of a node continues its open sum.
func (f *fusionRun) launch(ctx context.Context, n int) error {
	a, rows := f.a, int64(4*f.width)
	order, runs, sums, counts := f.io[0].Memory, f.io[1].Memory, f.io[2].Memory, f.io[3].Memory
	if err := order.Write(0, device.Bytes(f.order)); err != nil {
		return err
	}
	if err := runs.Write(0, device.Bytes(f.runs)); err != nil {
		return err
	}
	if err := sums.Fill(0, rows*int64(n), 0); err != nil {
		return err
	}
	at := 0
	for _, s := range f.segments {
		c := f.chains[s.node]
		if c.Rows > 0 {
			if err := sums.Write(rows*int64(at), device.Bytes(c.Run)); err != nil {
				return err
			}
		}
		at += (c.Rows + s.n + fusion.RunRows - 1) / fusion.RunRows
	}
	a.pending = true
	if err := a.stream.Launch(a.sums, a.shape(manyRuns, 128, (n+127)/128), kernels.AgentSumsArgs{
		PagedArgs: a.pagedArgs(), Groups: uint32(a.groups), Variable: uint32(f.variable), Width: uint32(f.width),
		BF16: device.Bit(f.bf16), Order: device.Ptr(order), Ordered: device.Bit(f.by == swarms.ByVote),
		Runs: device.Range(runs, 0, 8*int64(n)), N: uint32(n), Sums: device.Range(sums, 0, rows*int64(n)),
		Counts: device.Range(counts, 0, 4*int64(n)),
	}.Args()...); err != nil {
		return err
	}
	if err := a.stream.Sync(ctx); err != nil {
		return err
	}
	a.pending = false
	f.sums, f.counts = slices.Grow(f.sums[:0], n*f.width)[:n*f.width], slices.Grow(f.counts[:0], n)[:n]
	if err := sums.Read(0, device.Bytes(f.sums)); err != nil {
		return err
	}
	return counts.Read(0, device.Bytes(f.counts))
}

// manyRuns is the number of blocks of 128 threads for each multiprocessor. More than fit at once,
// because runs of small nodes have unequal lengths.
const manyRuns = 8

func (f *fusionRun) cut(from, to int) error {
	f.segments, f.runs, f.order = f.segments[:0], f.runs[:0], f.order[:0]
	switch f.by {
	case swarms.ByAll:
		f.segments = append(f.segments, segment{0, from, to - from})
	case swarms.ByGroup:
		for node := f.nodeOf(from); from < to; node++ {
			end := min(to, f.nodeEnd(from))
			f.segments = append(f.segments, segment{node, from, end - from})
			from = end
		}
	case swarms.ByVote:
		if err := f.sort(from, to); err != nil {
			return err
		}
	}
	for _, s := range f.segments {
		if f.chains[s.node] == nil {
			f.chains[s.node] = &Chain{}
		}
		rows := f.chains[s.node].Rows
		for left, first := s.n, s.first; left > 0; rows = 0 {
			n := min(left, fusion.RunRows-rows)
			f.runs = append(f.runs, uint32(first), uint32(n))
			first, left = first+n, left-n
		}
	}
	return nil
}

// nodeOf returns the node of an agent. The fusion is not by vote.
func (f *fusionRun) nodeOf(agent int) int {
	if f.by != swarms.ByGroup {
		return 0
	}
	return (f.a.first+agent/f.a.cell.Agents)*f.all/f.a.of - f.first
}

// nodeEnd returns the end of the agents in the node of an agent. The fusion is not by vote.
func (f *fusionRun) nodeEnd(agent int) int {
	if f.by != swarms.ByGroup {
		return int(f.a.n)
	}
	next := f.nodeOf(agent) + f.first + 1 // its first group is the end
	return min(int(f.a.n), ((next*f.a.of+f.all-1)/f.all-f.a.first)*f.a.cell.Agents)
}

// sort makes a segment of the agents of each vote, in the order of their ids.
func (f *fusionRun) sort(from, to int) error {
	a := f.a
	per := a.layout.Agents * a.layout.Slots
	f.votes = slices.Grow(f.votes[:0], to-from)[:to-from]
	clear(f.votes)
	for at := from; at < to; {
		page, n := at/per, min(to, (at/per+1)*per)-at
		if a.memory.Made()[page] {
			of := int64(a.memory.Frame(page))*int64(a.layout.PageBytes) +
				int64(a.layout.Offsets[kernels.AgentVarVote]) + int64(at%per)
			if err := a.memory.Arena().Read(of, f.votes[at-from:][:n]); err != nil {
				return fmt.Errorf("%w: votes of agents %d to %d: %w", gpubatch.ErrDevice, at, at+n-1, err)
			}
		}
		at += n
	}
	var ends [1 << 8]int // by vote byte; byte 0 means no vote
	for _, v := range f.votes {
		ends[v]++
	}
	first := 0
	for c := range f.chains {
		n := ends[c+1]
		ends[c+1] = first // and becomes the end as agents are placed
		if n > 0 {
			f.segments = append(f.segments, segment{c, first, n})
		}
		first += n
	}
	f.order = slices.Grow(f.order, first)[:first]
	for i, v := range f.votes {
		if v == 0 || int(v) > len(f.chains) {
			continue
		}
		f.order[ends[v]] = uint32(from + i)
		ends[v]++
	}
	return nil
}

// finish writes the sum of a node, without the padding of embeddings.
func (f *fusionRun) finish(node int) {
	c := f.chains[node]
	if c == nil {
		return
	}
	f.chains[node] = nil
	copy(f.nodes.Sums[node*f.nodes.Dim:][:f.nodes.Dim], c.Sum())
	f.nodes.Weights[node] = f.nodes.Counts[node] * consensus.One
}

func (f *fusionRun) trim() error {
	if err := f.close(); err != nil {
		return err
	}
	if _, err := f.a.dev.Trim(); err != nil {
		return gpubatch.Failed(err)
	}
	return nil
}

// A second call does nothing.
func (f *fusionRun) close() error {
	return gpubatch.Failed(gpubatch.CloseAll(&f.io[0], &f.io[1], &f.io[2], &f.io[3]))
}
