package feed

import (
	"context"

	"github.com/exoswarm/exoswarm/cpuagents/eviction"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// SwapLog commits the swaps of a swarm. commitlog.State is one.
type SwapLog interface {
	// Assign stores assignments for the entries from now on, and sets their After.
	Assign(ctx context.Context, all []statelog.Assignment) error
	// CommitSwap stores a swap with the assignments before it, and returns its entry.
	CommitSwap(ctx context.Context, p Part, evicted, returned uint64) (entry uint64, err error)
	// End returns the last known entry of a shard.
	End(shard int) uint64
}

// Evictions moves the groups of a swarm between its entities. The goroutine that feeds uses it.
type Evictions struct {
	*eviction.Eviction
	Log    SwapLog
	Window Window
	// Settled are by shard entries of the logs of the swarm. The answers up to them may have states
	// that are not stored yet; nil when they are.
	Settled []uint64
}

// Move appends the swaps of the entities that lose and get groups with the batch that was read,
// before it. Each swap is committed with its assignments, as a batch is. It returns when all are
// stored, and how many entities have lost a group and have returned with their state.
func (v *Evictions) Move(ctx context.Context) (evicted, returned uint64, err error) {
	changes := v.Changes()
	if len(changes) == 0 {
		return 0, 0, nil
	}
	if err := v.Window.All(ctx, v.Settled); err != nil {
		return 0, 0, err
	}
	v.Settled = nil
	plan, err := v.Plan(changes, v.Window.Answered)
	if err != nil {
		return 0, 0, err
	}
	for i := range plan.Swaps {
		s := &plan.Swaps[i]
		if err := v.Window.Room(ctx, s.Shard, v.Log.End(s.Shard)); err != nil {
			return evicted, returned, err
		}
		data, lost, got, err := s.Encode(ctx, v.Window.Await)
		if err != nil {
			return evicted, returned, err
		}
		if err := v.Log.Assign(ctx, s.Assigned); err != nil {
			return evicted, returned, err
		}
		v.Names.Add(s.Assigned)
		entry, err := v.Log.CommitSwap(ctx, Part{Shard: s.Shard, Data: data}, lost, got)
		if err != nil {
			return evicted, returned, err
		}
		s.Stored(entry, v.Window.Answered)
		evicted += lost
		returned += got
	}
	if err := v.Log.Assign(ctx, plan.Fresh); err != nil {
		return evicted, returned, err
	}
	v.Names.Add(plan.Fresh)
	return evicted, returned, nil
}
