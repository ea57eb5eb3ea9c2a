package queue

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// listStep is how many sequence numbers List reads before it calls fn in the opposite order.
const listStep = 256

// List calls fn with the stored results, newest first, until fn returns false. It selects jobs
// whose id begins with prefix. Messages that are not results are skipped. It reads one message at a
// time and holds at most listStep results.
func (rs *Results) List(ctx context.Context, prefix string, fn func(jobs.Result) bool) error {
	var first, last uint64
	err := rs.conn.Retry(ctx, "list results", func(ctx context.Context) error {
		s, err := rs.conn.JS.Stream(ctx, wire.ResultStream)
		if err == nil {
			first, last = s.CachedInfo().State.FirstSeq, s.CachedInfo().State.LastSeq
		}
		return err
	})
	if err != nil {
		return err
	}
	for end := last; end >= max(first, 1); {
		from := max(end-min(end, listStep)+1, first, 1)
		var step []jobs.Result
		for seq := from; seq <= end; {
			m, err := rs.conn.Next(ctx, wire.ResultStream, wire.ResultSubject("*"), seq)
			if errors.Is(err, jobs.ErrNotFound) || err == nil && m.Seq > end {
				break
			}
			if err != nil {
				return err
			}
			seq = m.Seq + 1
			if r, err := jobs.DecodeResult(m.Data); err == nil && strings.HasPrefix(r.JobID, prefix) {
				step = append(step, r)
			}
		}
		for _, r := range slices.Backward(step) {
			if !fn(r) {
				return nil
			}
		}
		end = from - 1
	}
	return nil
}
