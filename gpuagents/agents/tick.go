package agents

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// Tick steps all agents n times by the inputs that they hold, and waits for the last step. Stepped
// counts each step of each agent.
func (a *Agents) Tick(ctx context.Context, n int) (Report, error) {
	if n < 1 {
		return Report{}, fmt.Errorf("%w: %d ticks", ErrInvalid, n)
	}
	return a.TickAll(ctx, waits(ctx, a.memory), n, n)
}

// TickAll is Tick that checks ctx after every most steps, and waits for them with another context.
// After the end of ctx the pages are between two states.
//
// Agents do not depend on one another in a step. An agent that hears nothing of its group therefore
// makes TickSteps steps while it is in registers, and a set of pages makes all n while it is on the
// device. The states equal n ticks of all agents, and so do the decisions and the tally of the last
// tick. If nodes have several groups, all sets make a step before the next one.
func (a *Agents) TickAll(ctx, wait context.Context, n, most int) (r Report, err error) {
	if a.inconsistent != nil {
		return r, a.inconsistent
	}
	t := &ticking{a: a, fresh: a.fresh, publish: true}
	known, given := a.nodes.known, a.nodes.given
	a.fresh, a.nodes.known, a.nodes.given = false, false, false
	if a.nodes.byAgent() && !known {
		if err := a.recallNodes(wait); err != nil {
			return Report{}, err
		}
	}
	if a.nodes.count > 0 && !t.fresh && !given {
		if err := a.addUp(ctx, wait); err != nil {
			return Report{}, err
		}
	}
	sets, steps := a.memory.All(), n
	if a.nodes.count > 0 && len(sets) > 1 {
		for ; steps > 1 && err == nil; steps-- {
			t.publish = false
			if _, err = t.sweep(ctx, wait, sets, 1, most); err == nil && most < n {
				err = context.Cause(ctx)
			}
			sets, t.publish = a.memory.All(), true
		}
	}
	if err == nil {
		r, err = t.sweep(ctx, wait, sets, steps, most)
	}
	if err != nil {
		if t.begun && !a.memory.Resident() {
			a.inconsistent = fmt.Errorf("%w: a tick of a part of the agents: %w", gpubatch.ErrDevice, err)
		}
		return Report{}, err
	}
	a.fresh, a.nodes.known = true, true
	r.Stepped = uint64(n) * uint64(a.n)
	return r, nil
}

// Measure draws the ballots of a round, which become the votes of the agents of a quantum cell;
// agents that have never stepped abstain. The amplitudes stay. It does nothing for other cells.
// After the end of ctx the pages are between two states.
func (a *Agents) Measure(ctx context.Context, round uint64) error {
	if !a.cell.Measures() || a.inconsistent != nil {
		return a.inconsistent
	}
	if err := a.stream.Sync(ctx); err != nil { // a launch may read the round before
		return gpubatch.Failed(err)
	}
	words := []uint32{uint32(round), uint32(round >> 32)}
	if err := a.params.Write(4*kernels.QuantumRound, device.Bytes(words)); err != nil {
		return gpubatch.Failed(err)
	}
	wait, sets, begun := waits(ctx, a.memory), a.memory.All(), false
	err := a.memory.Each(ctx, sets, pages.Sweep, func(i int) error {
		begun = true
		votes := uint32(kernels.AgentTickCount)
		if i == len(sets)-1 {
			votes = kernels.AgentTickPublish
		}
		if err := a.launchTick(wait, sets[i].Pages, 0, votes, false); err != nil {
			return gpubatch.Failed(err)
		}
		a.memory.MarkDirty(sets[i].Pages)
		_, err := a.await(wait, 1)
		return err
	})
	if err != nil && begun && !a.memory.Resident() {
		a.inconsistent = fmt.Errorf("%w: a measurement of a part of the agents: %w", gpubatch.ErrDevice, err)
	}
	return err
}

type ticking struct {
	a       *Agents
	fresh   bool // kept was computed from the state before the tick
	publish bool // the last step makes the tally
	begun   bool // some agents have made a step
}

func (t *ticking) sweep(ctx, wait context.Context, sets []pages.Set, n, most int) (r Report, err error) {
	a, each := t.a, TickSteps
	if a.cell.Tells() {
		each = 1 // agents hear their group before each step
	}
	began := a.track.Now()
	err = a.memory.Each(ctx, sets, pages.Sweep, func(i int) error {
		t.begun = true
		began = a.paged(began, sets[i])
		for left := n; left > 0; left -= most {
			if err := context.Cause(ctx); err != nil && most < n {
				return err
			}
			for k := min(left, most); k > 0; k -= each {
				votes := uint32(kernels.AgentTickPublish)
				switch {
				case left > most || k > each || !t.publish:
					votes = kernels.AgentTickSilent
				case i < len(sets)-1:
					votes = kernels.AgentTickCount
				}
				if i == 0 && a.nodes.byAgent() {
					if err := a.updateNodes(); err != nil {
						return gpubatch.Failed(err)
					}
				}
				now := t.fresh || left < n || k < min(left, most) // this set has made a step before
				if err := a.launchTick(wait, sets[i].Pages, min(k, each), votes, now); err != nil {
					return gpubatch.Failed(err)
				}
				if i == len(sets)-1 {
					a.nodes.next()
				}
			}
			a.memory.MarkDirty(sets[i].Pages)
			if r, err = a.await(wait, 1); err != nil {
				return err
			}
		}
		began = a.track.End(gpubatch.StageKernel, began, 0)
		return nil
	})
	return r, err
}

// TickSteps is the maximum number of ticks of a launch. Sixteen ticks of 100M leaky agents take as
// long as 1.2 single ones (RFC 0011), so more of them would be little faster.
const TickSteps = 16

// launchTick steps the agents of consecutive pages that are on the device. Agents that hear their
// group take one step per launch. fresh reports whether kept was computed from the current pages.
// With steps 0 the launch only adds units to the sums of nodes.
func (a *Agents) launchTick(ctx context.Context, pages []uint64, steps int, votes uint32, fresh bool) error {
	if err := a.next(ctx); err != nil {
		return err
	}
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	ticking := kernels.TickingArgs{
		PagedArgs: a.pagedArgs(), Table: device.Ptr(a.weights), Groups: uint32(a.groups), First: uint32(pages[0]),
		Count: uint32(len(pages)), Steps: uint32(steps), Tally: votes, Decisions: device.Ptr(a.decisions),
		Scratch: device.Ptr(a.scratch), Sequence: a.sequence, Result: a.resultOf(0),
	}
	blocks, threads, span := a.cell.Shape()
	shared, blocks := a.pooled(blocks)
	shape := a.shape(blocks, threads, kernels.AgentSpans(a.layout, len(pages), span))
	shape.Shared = shared
	if !a.cell.Tells() {
		return a.stream.Launch(a.tick, shape, kernels.TickArgs{TickingArgs: ticking}.Args()...)
	}
	return a.stream.Launch(a.tick, shape, kernels.ToldArgs{
		TickingArgs: ticking, HeardArgs: a.cell.Heard(), Sums: device.Ptr(a.kept), Fresh: device.Bit(fresh),
		Nodes: uint32(a.nodes.count), Totals: device.Ptr(a.nodes.totals), Turn: uint32(a.nodes.turn),
		NodeOf: device.Ptr(a.nodes.of), By: uint32(a.nodes.by), Values: device.Ptr(a.nodes.values),
	}.Args()...)
}
