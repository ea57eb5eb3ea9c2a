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
)

// Learn merges values, Cell().Nodes() for each node, into distinct knowledge nodes. By the merge
// mean a node becomes the mean of itself and its values; by ema it moves to them by its rate; by
// max each unit becomes the larger one. A node that was never updated takes the values, and so do
// all nodes with replace. Learn counts as an update. The next tick has agents hear the node as it
// is then; later ticks update it again.
//
// Values are units, from -1 to 1. An ErrInvalid has changed nothing.
func (a *Agents) Learn(ctx context.Context, nodes []uint32, values []float32, replace bool) error {
	if a.inconsistent != nil {
		return a.inconsistent
	}
	if err := a.checkLearn(nodes, values); err != nil || len(nodes) == 0 {
		return err
	}
	a.nodes.known = false
	l := &learning{a: a, values: values, replace: replace}
	defer l.close()
	runs, sets := a.learnRuns(nodes)
	begun := false
	err := a.memory.Each(ctx, sets, pages.Random, func(i int) error {
		begun = true
		err := l.launch(waits(ctx, a.memory), runs[i])
		a.memory.MarkDirty(sets[i].Pages)
		if err != nil {
			return fmt.Errorf("%w: learn: %w", gpubatch.ErrDevice, err)
		}
		return nil
	})
	if err != nil && begun {
		a.inconsistent = fmt.Errorf("%w: nodes that have learned in part: %w", gpubatch.ErrDevice, err)
	}
	return errors.Join(err, l.close())
}

// checkLearn returns an ErrInvalid for nodes or values that Learn refuses.
func (a *Agents) checkLearn(nodes []uint32, values []float32) error {
	width, seen := a.cell.Nodes(), map[uint32]bool{}
	if len(values) != len(nodes)*width {
		return fmt.Errorf("%w: learn: %d values for %d nodes of %d units", ErrInvalid, len(values), len(nodes), width)
	}
	_, n := a.KnowledgeNodes()
	for i, node := range nodes {
		if int64(node) >= int64(n) || seen[node] {
			return fmt.Errorf("%w: learn: node %d of %d, or twice", ErrInvalid, node, n)
		}
		seen[node] = true
		for _, v := range values[i*width:][:width] {
			if !(math.Abs(float64(v)) <= 1) {
				return fmt.Errorf("%w: learn: node %d: %v: use values from -1 to 1", ErrInvalid, node, v)
			}
		}
	}
	return nil
}

// learnRuns returns the runs of groups of nodes for kernels.AgentLearnArgs, by set of pages.
func (a *Agents) learnRuns(nodes []uint32) (runs [][]uint32, sets []pages.Set) {
	var all [][4]uint32
	var of []uint64
	has := map[uint64]bool{}
	for row, node := range nodes {
		first, end := a.groupsOf(int(node))
		for n := 0; first < end; first += n {
			page, slot := first/a.layout.Slots, first%a.layout.Slots
			n = min(a.layout.Slots-slot, end-first)
			all = append(all, [4]uint32{uint32(page), uint32(slot), uint32(n), uint32(row)})
			if !has[uint64(page)] {
				has[uint64(page)], of = true, append(of, uint64(page))
			}
		}
	}
	sets = a.memory.PlanSets(of, make([]uint32, a.pages))
	setOf := make(map[uint64]int, len(of))
	for i, s := range sets {
		for _, page := range s.Pages {
			setOf[page] = i
		}
	}
	runs = make([][]uint32, len(sets))
	for _, run := range all {
		i := setOf[uint64(run[0])]
		runs[i] = append(runs[i], run[:]...)
	}
	return runs, sets
}

type learning struct {
	a       *Agents
	values  []float32
	replace bool
	buffers [2]gpubatch.Buffer // runs, values
}

func (l *learning) launch(ctx context.Context, runs []uint32) error {
	a, data := l.a, [2][]byte{device.Bytes(runs), device.Bytes(l.values)}
	for i, b := range data {
		if err := l.buffers[i].Grow(a.dev, len(b), "knowledge"); err != nil {
			return err
		}
		if err := l.buffers[i].Memory.Write(0, b); err != nil {
			return err
		}
	}
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	merge, rate := a.cell.Merges()
	n := len(runs) / 4
	a.pending = true
	if err := a.stream.Launch(a.learn, a.shape(learnBlocks, 128, n), kernels.AgentLearnArgs{
		PagedArgs: a.pagedArgs(), Groups: uint32(a.groups), N: uint32(n),
		Runs:   device.Range(l.buffers[0].Memory, 0, int64(len(data[0]))),
		Values: device.Range(l.buffers[1].Memory, 0, int64(len(data[1]))), Width: uint32(a.cell.Nodes()),
		Merge: uint32(merge), Rate: math.Float32bits(rate), Replace: device.Bit(l.replace), Host: a.memory.HostArena(),
	}.Args()...); err != nil {
		return errors.Join(err, a.stream.Sync(ctx))
	}
	if err := a.stream.Sync(ctx); err != nil {
		return err
	}
	a.pending = false
	return nil
}

// learnBlocks is the number of blocks of 128 threads for each multiprocessor. A block has one run
// at a time, which is short if nodes have few groups.
const learnBlocks = 8

// A second call does nothing.
func (l *learning) close() error {
	return gpubatch.Failed(gpubatch.CloseAll(&l.buffers[0], &l.buffers[1]))
}
