package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// startFromSnapshot restores the snapshot from which a shard without a checkpoint starts, if there
// is one. The snapshot includes the entries up to entry. If the snapshot is unusable and nothing is
// answered yet, it rejects the next entry, and told is true. A shard with answers was served by an
// agent that could load the snapshot, so the error lets this agent try again.
func startFromSnapshot(
	ctx context.Context, k *state.Snapshotter, s swarms.Swarm, shard int, w *writer, log *slog.Logger,
) (entry uint64, told bool, err error) {
	var from swarms.SnapshotRef
	switch {
	case s.BaseOf(shard) != nil:
		base := s.BaseOf(shard)
		from, entry = base.SnapshotRef, base.Entry
	case s.From != nil:
		from = *s.From
	default:
		return 0, false, nil
	}
	began := time.Now()
	err = k.Load(ctx, from)
	if err == nil {
		if entry == 0 { // rounds of another swarm do not count
			k.Rounds().Restore(0, nil)
		}
		log.Info("swarm begins as a snapshot", "snapshot", from.Name, "entry", entry, "took", time.Since(began))
		return entry, false, nil
	}
	err = fmt.Errorf("swarm %s: %w", s.Name, err)
	if wrong := (*jobs.Error)(nil); !errors.As(err, &wrong) || w.answered > 0 {
		return 0, false, err
	}
	return 0, true, w.reject(ctx, w.answered+1, err)
}
