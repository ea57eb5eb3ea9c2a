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
	l := sw.Log(swarm, shard, d).(*Log)
	var e swarms.Entry
	var at time.Time
	err := sw.conn.Retry(ctx, fmt.Sprintf("read entry %d of %s", seq, l.stream), func(ctx context.Context) error {
		m, err := sw.conn.GetOnce(ctx, l.stream, map[string]any{"seq": seq})
		if err != nil {
			return err
		}
		at = m.Time
		e, err = entry(m.Seq, m.Header, m.Data)
		return err
	})
	return e, at, err
}
