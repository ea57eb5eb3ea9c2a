package agents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// Sums returns the sums from which the next step computes the shared nodes of the agents:
// uint64[nodes][Cell().Nodes()+1], in the form of kernels.ToldArgs. It changes no agent, and the
// slice is the caller's. ErrInvalid: the agents have no shared nodes.
func (a *Agents) Sums(ctx context.Context) ([]uint64, error) {
	switch {
	case a.inconsistent != nil:
		return nil, a.inconsistent
	case a.nodes.count == 0:
		return nil, fmt.Errorf("%w: sums of agents without shared nodes", ErrInvalid)
	}
	if a.nodes.byAgent() && !a.nodes.known {
		if err := a.recallNodes(ctx); err != nil {
			return nil, err
		}
	}
	if !a.fresh {
		if err := a.addUp(ctx, ctx); err != nil {
			return nil, err
		}
	}
	set := a.setOfSums()
	data, err := a.read(ctx, a.nodes.totals, int64(a.nodes.turn+1)*set)
	if err != nil {
		return nil, err
	}
	return device.Of[uint64](data[int64(a.nodes.turn)*set:]), nil
}

// TickWith is Tick for one step that computes the nodes from the given sums. These are the merged
// Sums of all shards of a swarm whose nodes are by vote or by key. It does not keep them. An
// ErrInvalid, for another number of nodes or units, has changed nothing.
func (a *Agents) TickWith(ctx, wait context.Context, sums []uint64) (Report, error) {
	switch set := a.setOfSums(); {
	case a.inconsistent != nil:
		return Report{}, a.inconsistent
	case a.nodes.count == 0 || int64(8*len(sums)) != set:
		return Report{}, fmt.Errorf("%w: %d words of sums for %d nodes of %d units", ErrInvalid, len(sums),
			a.nodes.count, a.nodes.width)
	}
	if err := a.stream.Sync(wait); err != nil {
		return Report{}, gpubatch.Mark(err)
	}
	totals := a.nodes.totals
	if err := errors.Join(totals.Fill(0, totals.Size(), 0), totals.Write(0, device.Bytes(sums))); err != nil {
		return Report{}, gpubatch.Failed(err)
	}
	a.nodes.turn, a.nodes.given = 0, true
	return a.TickAll(ctx, wait, 1, 1)
}

// setOfSums returns the size of one of the three sets of sums, in bytes.
func (a *Agents) setOfSums() int64 { return 8 * int64(a.nodes.count) * int64(a.nodes.width+1) }
