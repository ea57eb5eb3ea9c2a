package bulk

import (
	"context"
	"errors"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Queue is the part of a queue that knows swarms. The field Swarms of a connection of jobs/natsq is
// one.
type Queue interface {
	// Swarm returns the record of an id; jobs.ErrNotFound when there is none.
	Swarm(ctx context.Context, id string) (swarms.Swarm, error)
	// Log returns a log of a shard. key is that of the record.
	Log(key string, shard int, d swarms.Direction) swarms.Log
}

// QueueLogs is the Logs of a queue.
type QueueLogs struct{ queue Queue }

// NewQueueLogs returns the Logs of a queue.
func NewQueueLogs(q Queue) *QueueLogs { return &QueueLogs{q} }

// Kept implements Logs.
func (l *QueueLogs) Kept(ctx context.Context, swarm string, shard int) (base uint64, gone bool, err error) {
	id, _, _ := strings.Cut(swarm, "=") // see swarms.Swarm.Key
	s, err := l.queue.Swarm(ctx, id)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return 0, true, nil
	case err != nil:
		return 0, false, err
	case s.Key() != swarm || shard >= s.ShardCount(): // another swarm of the same id
		return 0, true, nil
	}
	if b := s.BaseOf(shard); b != nil {
		base = b.Entry
	}
	return base, false, nil
}

// Last implements Logs.
func (l *QueueLogs) Last(ctx context.Context, swarm string, shard int) (uint64, error) {
	e, err := l.queue.Log(swarm, shard, swarms.In).Last(ctx)
	return e.Seq, err
}
