package queue

import (
	"context"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Children returns the ids of at most limit jobs that wait for a job, in the order of their
// submission. It reads one edge at a time.
func (q *Queue) Children(ctx context.Context, id string, limit int) (all []string, err error) {
	if err := jobs.CheckID("job id", id); err != nil {
		return nil, err
	}
	if limit <= 0 {
		return nil, nil
	}
	for m, err := range q.conn.Each(ctx, "list the jobs that wait for "+id, wire.WaitStream,
		wire.EdgeSubject(id, "*"), 1) {
		if err != nil {
			return nil, err
		}
		if all = append(all, m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]); len(all) == limit {
			break
		}
	}
	return all, nil
}
