package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/swarmset"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/gpuagents/staging"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// leastGathered is the least number of agents whose states the device gathers. The states of fewer
// are read one by one.
const leastGathered = 64

// gathering is the memory through which states of agents are read: ids, then votes and values, in
// pinned memory and on the device at the same places. It grows and is kept for the next call.
type gathering struct {
	kernel   device.Kernel
	host     device.HostBuffer
	onDevice device.Buffer
}

// open makes room for so many bytes.
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
	bytes += bytes / 2 // so that questions of similar size allocate once
	if g.host, err = d.AllocHost(bytes, "query"); err != nil {
		return err
	}
	if g.onDevice, err = d.Alloc(bytes, "query"); err != nil {
		return err
	}
	return g.onDevice.Fill(0, bytes, 0) // a download copies the gap between votes and states
}

// close releases the memory. A second call does nothing, and open may follow.
func (g *gathering) close() error {
	var errs []error
	if g.host != nil {
		errs = append(errs, g.host.Close())
	}
	if g.onDevice != nil {
		errs = append(errs, g.onDevice.Close())
	}
	g.host, g.onDevice = nil, nil
	return errors.Join(errs...)
}

// gather is AgentStates of resident agents: one launch reads all states. It reports false without an
// error if the device has no room.
func gather(ctx context.Context, a *Agents, out *batch.AgentStates) (done bool, err error) {
	g, n := &a.gathering, int64(len(out.Agent))
	votes := align(4 * n)
	states := votes + align(n)
	end := states + 4*int64(len(out.State))
	if err := g.open(a.dev, end); err != nil {
		if err = errors.Join(err, g.close()); errors.Is(err, device.ErrOutOfMemory) {
			return false, nil
		}
		return false, fault.Mark(err)
	}
	if err := g.run(ctx, a, out.Agent, votes, states, end); err != nil {
		return false, fmt.Errorf("%w: states of %d agents: %w", fault.ErrDevice, n, err)
	}
	from := g.host.Bytes()
	return true, staging.Copy([]staging.Part{
		{To: out.Vote, From: from[votes : votes+n]}, {To: device.Bytes(out.State), From: from[states:end]},
	}, func(int, int, int) error { return nil })
}

// run gathers the states of agents and waits for them: votes at one place, then states, up to end.
func (g *gathering) run(ctx context.Context, a *Agents, ids []uint32, votes, states, end int64) error {
	for page, made := range a.memory.Made() {
		if !made {
			a.memory.SetAbsent(uint64(page))
		}
	}
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
	if err := a.stream.Launch(
		g.kernel, a.shape(manyRuns, 256, (len(ids)*values+255)/256), swarmset.GatherArgs{
			SwarmArgs: a.swarmArgs(), First: a.layout.Offsets[vars[0]], Second: a.layout.Offsets[vars[len(vars)-1]],
			Width: uint32(width), Stride: uint32(of.Width), BF16: device.Bit(of.Elem == kernels.BF16),
			IDs: device.Range(g.onDevice, 0, 4*n), N: uint32(n), Values: uint32(values),
			OutVotes: device.Range(g.onDevice, votes, n), Out: device.Range(g.onDevice, states, end-states),
		}.Args()...,
	); err != nil {
		return err
	}
	if err := a.stream.Download(g.host, votes, g.onDevice, votes, end-votes); err != nil {
		return err
	}
	err := a.stream.Sync(ctx)
	a.pending = err != nil
	return err
}
