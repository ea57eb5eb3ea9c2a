package queue

import (
	"context"
	"errors"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Children returns the ids of at most limit jobs that wait for a job, in the order of their
// submission. It reads one edge at a time.
func (q *Queue) Children(ctx context.Context, id string, limit int) (all []string, err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return nil, err
	}
	for seq := uint64(1); len(all) < limit; seq++ {
		var m *natsconn.Message
		err := q.conn.Retry(ctx, "list the jobs that wait for "+id, func(ctx context.Context) (err error) {
			m, err = q.conn.NextOnce(ctx, wire.WaitStream, wire.EdgeSubject(id, "*"), seq)
			return err
		})
		if errors.Is(err, jobs.ErrNotFound) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		seq = m.Seq
		all = append(all, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	}
	return all, nil
}
