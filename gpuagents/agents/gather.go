package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// leastGathered is the minimum number of agents whose states the device gathers. The states of
// fewer agents are read one by one.
const leastGathered = 64

// gathering is the memory through which states of agents are read: ids, then votes and values. It
// grows and is kept for the next call.
type gathering struct {
	mirror
	kernel device.Kernel
}

func (g *gathering) open(d device.Device, bytes int64) (err error) {
	if g.kernel == nil {
		if g.kernel, err = d.Kernel(swarmset.Gather); err != nil {
			return err
		}
	}
	if g.host != nil && g.host.Size() >= bytes {
		return nil
	}
	if err := g.close(); err != nil {
		return err
	}
	return g.alloc(d, bytes+bytes/2, "query") // so that questions of similar size allocate once
}

// gather is AgentStates for resident agents, in one launch. It returns false without an error if
// the device has no room.
func gather(ctx context.Context, a *Agents, out *batch.AgentStates) (done bool, err error) {
	g, n := &a.gathering, int64(len(out.Agent))
	votes := align(4 * n)
	states := votes + align(n)
	end := states + 4*int64(len(out.State))
	if err := g.open(a.dev, end); err != nil {
		if errors.Is(err, device.ErrOutOfMemory) {
			return false, nil
		}
		return false, gpubatch.Mark(err)
	}
	if err := g.run(ctx, a, out.Agent, votes, states, end); err != nil {
		return false, fmt.Errorf("%w: states of %d agents: %w", gpubatch.ErrDevice, n, err)
	}
	from := g.host.Bytes()
	return true, gpubatch.Copy([]gpubatch.Part{
		{To: out.Vote, From: from[votes : votes+n]}, {To: device.Bytes(out.State), From: from[states:end]},
	}, nil)
}

// run gathers the states of agents and waits for them. votes and states are offsets, and end is the
// end of the states.
func (g *gathering) run(ctx context.Context, a *Agents, ids []uint32, votes, states, end int64) error {
	a.memory.SetAbsent(a.memory.All()[0].Pages) // a resident memory has one set
	if err := a.memory.FlushFrames(a.frames); err != nil {
		return err
	}
	vars, width := a.StateVars()
	of := a.layout.Vars[vars[0]]
	n := int64(len(ids))
	copy(g.host.Bytes(), device.Bytes(ids))
	a.pending = true
	if err := a.stream.Upload(g.onDevice, 0, g.host, 0, 4*n); err != nil {
		return err
	}
	values := width * len(vars)
	shape := a.shape(manyRuns, 256, (len(ids)*values+255)/256)
	if err := a.stream.Launch(g.kernel, shape, swarmset.GatherArgs{
		SwarmArgs: a.swarmArgs(), First: a.layout.Offsets[vars[0]], Second: a.layout.Offsets[vars[len(vars)-1]],
		Width: uint32(width), Stride: uint32(of.Width), BF16: device.Bit(of.Elem == kernels.BF16),
		IDs: device.Range(g.onDevice, 0, 4*n), N: uint32(n), Values: uint32(values),
		OutVotes: device.Range(g.onDevice, votes, n), Out: device.Range(g.onDevice, states, end-states),
	}.Args()...); err != nil {
		return err
	}
	if err := a.stream.Download(g.host, votes, g.onDevice, votes, end-votes); err != nil {
		return err
	}
	err := a.stream.Sync(ctx)
	a.pending = err != nil
	return err
}
