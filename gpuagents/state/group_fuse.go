package state

import (
	"context"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// fuseWindow bounds the bytes of pages that a fusion reads at a time into host memory. It is as
// large as a set of pages, so that the bus is busy, and a drain waits for one window at most.
const fuseWindow = 32 << 20

// fuse answers a fusion of all agents of the shard, by group or all: the nodes that these agents
// are in, with their sums if the client merges several shards. With one shard, the nodes equal to
// the bit one fusion.Nodes.Accumulate of all agents in the order of their ids. Agents of groups
// without a round have weight 0. It changes nothing. A mistake of the client is a *jobs.Error, and
// the end of ctx is an error that leaves no answer.
func (s *groupState) fuse(ctx context.Context, data []byte) (Answer, error) {
	want, err := swarms.DecodeFuse(data)
	if err != nil {
		return Answer{}, err
	}
	_, width := s.bound.Embedding()
	all := 1
	switch {
	case want.By == swarms.ByVote:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid,
			"fuse: by vote: agents of a swarm whose groups are addressed keep no vote: fuse by group or all",
		)
	case width == 0:
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "fuse: the cell keeps no float variable, so agents have no embedding",
		)
	case want.Nodes > s.has.All:
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "fuse: nodes %d: the swarm has %d groups: use at most as many",
			want.Nodes, s.has.All)
	case want.By == swarms.ByGroup && want.Nodes == 0:
		all = s.has.All
	case want.By == swarms.ByGroup:
		all = want.Nodes
	}
	first, n := s.has.nodes(want.By, all)
	if err := checkNodes(n, width); err != nil {
		return Answer{}, err
	}
	nodes, err := s.fuseAll(ctx, all, first, n, fuseWindow)
	if err != nil {
		return Answer{}, err
	}
	return answerFusion(want, first, nodes, 0)
}

// fuseAll fuses all agents of the shard into n nodes of consecutive groups, from number from of all
// nodes of the swarm on. It reads the pages in windows of at most bytes, at least one page, and
// checks ctx before each window.
func (s *groupState) fuseAll(ctx context.Context, all, from, n, bytes int) (fusion.Nodes, error) {
	vars, width := s.bound.Embedding()
	f := &groupFusing{
		nodes: fusion.Nodes{
			Dim:     width,
			Sums:    make([]float32, n*width),
			Weights: make([]uint64, n),
			Counts:  make([]uint64, n),
		}, row: make([]float32, width), all: all, from: from, has: s.has,
	}
	// Variables of a page: the rounds of its groups, and the embedding.
	l := s.layout
	of := append(
		[]int{slices.IndexFunc(l.Vars, func(v kernels.Var) bool { return v.Group && v.Name == "round" })},
		vars...)
	size := 0
	for _, v := range of {
		size += extent(l, v)
	}
	window := max(1, bytes/size)
	buf := make([]byte, min(window, s.memory.Count())*size)
	for first := 0; first < s.memory.Count(); first += window {
		if ctx.Err() != nil {
			return fusion.Nodes{}, context.Cause(ctx)
		}
		clear(buf) // a page that does not exist has groups without rounds
		pages := min(window, s.memory.Count()-first)
		at := 0
		var parts []pager.Part
		for page := range pages {
			for _, v := range of {
				parts = append(parts, pager.Part{
					Page: uint64(first + page), Off: int64(l.Offsets[v]), Bytes: buf[at:][:extent(l, v)],
				})
				at += extent(l, v)
			}
		}
		held := slices.Clone(parts) // ReadAll drops the parts of pages that do not exist
		if err := s.memory.ReadAll(context.WithoutCancel(ctx), parts); err != nil {
			return fusion.Nodes{}, err
		}
		for page := range pages {
			columns := f.columns[:0]
			rounds := device.Of[uint64](held[page*len(of)].Bytes)
			for i, v := range vars {
				columns = append(columns, floats(l.Vars[v].Elem, held[page*len(of)+1+i].Bytes))
			}
			f.columns = columns
			f.page(l, rounds, vars, (first+page)*l.Slots)
		}
	}
	f.finish()
	return f.nodes, nil
}

// extent returns the bytes of a variable in a page, rounded up so that the next variable in a
// buffer is aligned. v is an index of l.Vars.
func extent(l kernels.Layout, v int) int {
	of, n := l.Vars[v], l.Slots
	if !of.Group {
		n *= l.Agents
	}
	return (n*of.Width*of.Elem.Bytes() + 7) / 8 * 8
}

// floats returns the elements of a variable of an embedding as float32. The result may share the
// memory of data.
func floats(e kernels.Elem, data []byte) []float32 {
	if e != kernels.BF16 {
		return device.Of[float32](data)
	}
	short := device.Of[uint16](data)
	all := make([]float32, len(short))
	for i, v := range short {
		all[i] = device.FromBF16(v)
	}
	return all
}

// groupFusing is a fusion whose agents come in the order of their ids. The order of the additions
// is fixed, because floating-point sums depend on it.
type groupFusing struct {
	nodes   fusion.Nodes
	has     GroupRange   // of the shard
	all     int          // nodes of the swarm
	from    int          // number of the first one of nodes
	node    int          // the node of the current agents, an index of nodes
	chain   agents.Chain // the sum of the current node
	columns [][]float32
	row     []float32
}

// page adds the agents of a page. Its first group is number first of the shard. rounds has the
// round of each group of the page; an agent of a group with round 0 has never stepped and is not
// counted. f.columns has the variables of the embedding.
func (f *groupFusing) page(l kernels.Layout, rounds []uint64, vars []int, first int) {
	per := l.Slots * l.Agents
	for slot := range min(l.Slots, f.has.Groups-first) {
		group := int64(f.has.First + first + slot)
		if node := int(group*int64(f.all)/int64(f.has.All)) - f.from; node != f.node {
			f.finish()
			f.node = node
		}
		for a := slot * l.Agents; a < (slot+1)*l.Agents; a++ {
			if rounds[slot] == 0 {
				f.add(false)
				continue
			}
			d := 0
			for i, v := range vars {
				for c := range l.Vars[v].Width {
					f.row[d] = f.columns[i][c*per+a]
					d++
				}
			}
			f.add(true)
		}
	}
}

// add adds the agent in row to its node. An agent that is not counted, or has a value that is not
// finite, keeps its place in a run. A run has fusion.RunRows agents, and runs are summed by
// agents.Chain.
func (f *groupFusing) add(counted bool) {
	c := &f.chain
	if c.Rows == 0 {
		c.Run = append(c.Run[:0], make([]float32, len(f.row))...)
	}
	if counted &&
		!slices.ContainsFunc(f.row, func(v float32) bool { return math.Float32bits(v)&0x7f800000 == 0x7f800000 }) {
		f.nodes.Counts[f.node]++
		for d, v := range f.row {
			c.Run[d] += v
		}
	}
	if c.Rows++; c.Rows == fusion.RunRows {
		c.Rows = 0
		c.Push(0, c.Run)
	}
}

// finish writes the sum of the current node, and begins an empty sum.
func (f *groupFusing) finish() {
	d := f.nodes.Dim
	copy(f.nodes.Sums[f.node*d:][:d], f.chain.Sum())
	f.nodes.Weights[f.node] = f.nodes.Counts[f.node] * consensus.One
	f.chain = agents.Chain{Run: f.chain.Run}
}
