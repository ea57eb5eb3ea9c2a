package swarmlog

import (
	"context"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Entry returns the entry of a number in a log of a shard, and when it was stored by the server's
// clock. jobs.ErrNotFound when there is none of that number. It needs no consumer, so a viewer may
// call it; a reader of many entries uses Log.Read.
func (sw *Swarms) Entry(ctx context.Context, swarm string, shard int, d swarms.Direction, seq uint64) (swarms.Entry,
	time.Time, error,
) {
	return sw.Log(swarm, shard, d).(*Log).at(ctx, seq)
}

// Entry returns one entry, with a single request. It fails with jobs.ErrNotFound if there is none
// of the number.
func (l *Log) Entry(ctx context.Context, seq uint64) (swarms.Entry, error) {
	e, _, err := l.at(ctx, seq)
	return e, err
}

// at returns an entry and the time at which it was stored.
func (l *Log) at(ctx context.Context, seq uint64) (e swarms.Entry, at time.Time, err error) {
	err = l.conn.Retry(ctx, fmt.Sprintf("read entry %d of %s", seq, l.stream), func(ctx context.Context) error {
		m, err := l.conn.GetOnce(ctx, l.stream, map[string]any{"seq": seq})
		if err != nil {
			return err
		}
		at = m.Time
		e, err = entry(m.Seq, m.Header, m.Data)
		return err
	})
	return e, at, err
}
