package gpuagents

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// sweepCheckpoints removes the checkpoints of shards without a log: their swarms ended while the
// agent did not run.
func (a *Agent) sweepCheckpoints(ctx context.Context) {
	if a.o.Checkpoints == nil {
		return
	}
	shards, err := a.o.Checkpoints.Shards()
	if err != nil { // of some tiers
		a.o.Logger.Warn("listing checkpoints", "error", err)
	}
	for _, id := range shards {
		if _, err := a.o.Queue.Log(id.Swarm, id.Shard, swarms.In).Last(ctx); errors.Is(err, jobs.ErrNotFound) {
			removeCheckpoint(a, id)
		}
	}
}

func removeCheckpoint(a *Agent, id shard.ID) {
	if a.o.Checkpoints == nil {
		return
	}
	a.server.Forget(id)
	if err := a.o.Checkpoints.Remove(id.Swarm, id.Shard); err != nil {
		a.o.Logger.Warn("removing a checkpoint", "swarm", id.Swarm, "shard", id.Shard, "error", err)
	}
}
