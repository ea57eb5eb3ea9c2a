package agents

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Never is the age of a knowledge node that was never updated.
const Never = math.MaxUint64

// sharedNodes are knowledge nodes of runs of groups, or nodes by vote or key. Each group of a run
// has a copy of its node in its page, also where agents choose their nodes. The sums of the units
// of a node are kept apart from the pages, and so are its values where agents choose; both can be
// rebuilt from the pages.
//
// By vote and by key, each shard has all nodes, with copies in groups of the shard. By key the
// first node of the shard is the node of its first agent.
type sharedNodes struct {
	all          int // nodes of the swarm
	groups       int // groups over which all nodes are spread
	first, count int // range of the nodes of these agents; count 0: each group has a node, or there are none
	width, by    int
	totals, of   device.Buffer // see kernels.ToldArgs
	turn         int
	values       device.Buffer // see kernels.AgentNodesArgs
	flags        device.Buffer
	known        bool // values and flags are current copies
	given        bool // the next step uses sums of all shards
}

// byAgent reports whether agents of a group may have different nodes.
func (s *sharedNodes) byAgent() bool { return s.by != kernels.AgentByGroup }

// next moves on to the sums that the last step has made.
func (s *sharedNodes) next() { s.turn = (s.turn + 1) % 3 }

func (s *sharedNodes) bytes() int64 { return max(4, 3*8*int64(s.count)*int64(s.width+1)) }

// shareNodes returns the nodes of the agents. Node k of N has the groups from floor(k*G/N) up to
// the first group of node k+1; G is the number of groups of the swarm. A shard therefore starts
// with a node if N is a multiple of the number of shards. By vote and by key, G is the number of
// groups of the shard.
func (a *Agents) shareNodes() (s sharedNodes, err error) {
	if a.cell.Nodes() == 0 {
		return s, nil
	}
	all, by := a.cell.SharedNodes(), a.cell.NodesBy()
	merge, _ := a.cell.Merges()
	if all == 0 && merge == kernels.AgentMergeAttention {
		all = a.of
	}
	if all == 0 || all == a.of && by == kernels.AgentByGroup && merge != kernels.AgentMergeAttention {
		return s, nil
	}
	s = sharedNodes{all: all, groups: a.of, width: a.cell.Nodes(), by: by}
	if by != kernels.AgentByGroup {
		if s.count, s.groups = all, a.groups; all > a.groups {
			return s, fmt.Errorf("%w: %d knowledge nodes of %d groups of a shard: use no more nodes than groups",
				ErrInvalid, all, a.groups)
		}
		return s, nil
	}
	begin := func(group int) (node int, ok bool) { // the first node from a group on
		node = int((int64(group)*int64(all) + int64(a.of) - 1) / int64(a.of))
		return node, int64(node)*int64(a.of)/int64(all) == int64(group)
	}
	first, whole := begin(a.first)
	end, ends := begin(a.first + a.groups)
	if s.first, s.count = first, end-first; all > a.of || !whole || !ends {
		return s, fmt.Errorf("%w: %d knowledge nodes of %d groups, and groups %d to %d are a shard: use no more "+
			"nodes than groups, and a multiple of the number of shards", ErrInvalid, all, a.of, a.first,
			a.first+a.groups-1)
	}
	return s, nil
}

// KnowledgeNodes returns the numbers of the knowledge nodes of the agents: n from first on.
func (a *Agents) KnowledgeNodes() (first, n int) {
	switch {
	case a.cell.Nodes() == 0:
		return 0, 0
	case a.nodes.count == 0:
		return a.first, a.groups
	}
	return a.nodes.first, a.nodes.count
}

// groupsOf returns the range [first, end) of groups of node number k of these agents.
func (a *Agents) groupsOf(k int) (first, end int) {
	if a.nodes.count == 0 {
		return k, k + 1
	}
	begins := 0 // the first of the groups that nodes are spread over
	if !a.nodes.byAgent() {
		begins = a.first
	}
	at := func(node int) int {
		return int(int64(a.nodes.first+node)*int64(a.nodes.groups)/int64(a.nodes.all)) - begins
	}
	return at(k), at(k + 1)
}

func (a *Agents) nodeOf() (of []uint32) {
	for k := range a.nodes.count {
		for first, end := a.groupsOf(k); first < end; first++ {
			of = append(of, uint32(k))
		}
	}
	return of
}

// addUp computes the sums of the units of shared nodes for the next step. It changes no page.
func (a *Agents) addUp(ctx, wait context.Context) error {
	if err := a.stream.Sync(wait); err != nil {
		return gpubatch.Mark(err)
	}
	if err := a.nodes.totals.Fill(0, a.nodes.totals.Size(), 0); err != nil {
		return gpubatch.Failed(err)
	}
	a.nodes.turn = 0
	sets := a.memory.All()
	return a.memory.Each(ctx, sets, pages.SweepRead, func(i int) error {
		launched, all := false, sets[i].Pages
		for first, n := 0, 0; first < len(all); first += n + 1 {
			for n = 0; first+n < len(all) && a.memory.Made()[all[first+n]]; n++ {
			}
			if n == 0 { // a page that does not exist has agents that have never stepped
				continue
			}
			if err := a.launchTick(wait, all[first:first+n], 0, kernels.AgentTickSilent, false); err != nil {
				return gpubatch.Failed(err)
			}
			launched = true
		}
		if !launched {
			return nil
		}
		_, err := a.await(wait, 1)
		return err
	})
}

// recallNodes restores the values of nodes by vote and key from the copies that groups have.
func (a *Agents) recallNodes(ctx context.Context) error {
	if err := a.stream.Sync(ctx); err != nil {
		return gpubatch.Mark(err)
	}
	n, width := a.nodes.count, a.nodes.width
	values, updates, learned, flags := make([]float32, n*width), make([]uint64, n), make([]byte, n), make([]uint32, n)
	var parts []pager.Part
	for k := range n {
		first, _ := a.groupsOf(k)
		page, slot := first/a.layout.Slots, first%a.layout.Slots
		parts = append(parts,
			a.part(page, kernels.AgentVarKnowledge, slot, device.Bytes(values[k*width:][:width])),
			a.part(page, kernels.AgentVarUpdates, slot, device.Bytes(updates[k:k+1])),
			a.part(page, kernels.AgentVarLearned, slot, learned[k:k+1]))
	}
	if err := a.memory.ReadAll(ctx, parts); err != nil {
		return err
	}
	for k := range flags {
		if updates[k] > 0 {
			flags[k] |= kernels.AgentNodeMerged
		}
		if learned[k] != 0 {
			flags[k] |= kernels.AgentNodeLearned
		}
	}
	if err := errors.Join(a.nodes.values.Write(0, device.Bytes(values)),
		a.nodes.flags.Write(0, device.Bytes(flags))); err != nil {
		return gpubatch.Failed(err)
	}
	a.nodes.known = true
	return nil
}

// mostPooled is the maximum size of the shared memory that a block of a tick uses for nodes by key,
// in bytes. leastPooling is the minimum number of such blocks on a multiprocessor.
const mostPooled, leastPooling = 40 << 10, 2

// pooled returns the size of the shared memory of a block of a tick for nodes by key, and how many
// of blocks fit on a multiprocessor. The size is 0 if agents add themselves to the sums one by one.
func (a *Agents) pooled(blocks int) (bytes, fit int) {
	if a.nodes.by != kernels.AgentByKey {
		return 0, blocks
	}
	merge, _ := a.cell.Merges()
	bytes = kernels.AgentPool(a.nodes.count, a.nodes.width, merge)
	class := a.layout.Vars[kernels.AgentVarRow].Width / 2
	p := a.dev.Properties()
	fit = kernels.AgentToldBlocks(class, bytes, p.ComputeMajor, p.ComputeMinor)
	if bytes > mostPooled || fit < leastPooling {
		return 0, blocks
	}
	return bytes, min(blocks, fit)
}

func (a *Agents) updateNodes() error {
	merge, rate := a.cell.Merges()
	s := &a.nodes
	return a.stream.Launch(a.update, a.shape(learnBlocks, 128, (s.count+127)/128),
		kernels.AgentNodesArgs{
			Totals: device.Ptr(s.totals), Nodes: uint32(s.count), Width: uint32(s.width), Turn: uint32(s.turn),
			Merge: uint32(merge), Rate: math.Float32bits(rate), Values: device.Ptr(s.values),
			Flags: device.Ptr(s.flags),
		}.Args()...)
}

// keptBytes returns the size of what ticks keep of the nodes of groups.
func (a *Agents) keptBytes() int64 {
	if a.cell.Nodes() == 0 || a.nodes.count > 0 || !kernels.AgentKeeps(a.cell.Agents) {
		return 4 // any memory
	}
	return 4 * (kernels.AgentMostNode + 1) * int64(a.groups)
}

// Knowledge is knowledge nodes.
type Knowledge struct {
	Units   []float32 // Cell().Nodes() values for each node
	Updates []uint64
	// Ages are the largest numbers of steps that a group with a copy of each node has made since
	// the last update: ticks that did not update it, and launches of observations. Never: there was
	// no update.
	Ages []uint64
}

// Knowledge returns knowledge nodes by their numbers, from 0 on. Agents without nodes have none.
func (a *Agents) Knowledge(ctx context.Context, nodes []uint32) (k Knowledge, err error) {
	width := a.cell.Nodes()
	if width == 0 {
		return Knowledge{}, nil
	}
	if err := a.stream.Sync(ctx); err != nil {
		return Knowledge{}, gpubatch.Mark(err)
	}
	n := len(nodes)
	k = Knowledge{make([]float32, n*width), make([]uint64, n), make([]uint64, n)}
	var parts []pager.Part
	rounds := make([][2][]uint64, n) // by node: the rounds of its groups, and the rounds of their updates
	for i, node := range nodes {
		first, end := a.groupsOf(int(node))
		page, slot := first/a.layout.Slots, first%a.layout.Slots
		parts = append(parts,
			a.part(page, kernels.AgentVarKnowledge, slot, device.Bytes(k.Units[i*width:][:width])),
			a.part(page, kernels.AgentVarUpdates, slot, device.Bytes(k.Updates[i:i+1])))
		all := [2][]uint64{make([]uint64, end-first), make([]uint64, end-first)}
		for g, n := first, 0; g < end; g += n {
			page, slot := g/a.layout.Slots, g%a.layout.Slots
			n = min(a.layout.Slots-slot, end-g)
			parts = append(parts,
				a.part(page, kernels.AgentVarRound, slot, device.Bytes(all[0][g-first:][:n])),
				a.part(page, kernels.AgentVarUpdated, slot, device.Bytes(all[1][g-first:][:n])))
		}
		rounds[i] = all
	}
	if err := a.memory.ReadAll(ctx, parts); err != nil {
		return Knowledge{}, err
	}
	for i, all := range rounds {
		if k.Updates[i] == 0 {
			k.Ages[i] = Never
			continue
		}
		for g, round := range all[0] {
			k.Ages[i] = max(k.Ages[i], round-all[1][g])
		}
	}
	return k, nil
}
