package queue

import (
	"context"
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
	first, last, err := rs.conn.Bounds(ctx, "list results", wire.ResultStream)
	if err != nil {
		return err
	}
	for end := last; end >= max(first, 1); {
		from := max(end-min(end, listStep)+1, first, 1)
		var step []jobs.Result
		subject := wire.ResultSubject("*")
		for m, err := range rs.conn.Each(ctx, "read "+subject, wire.ResultStream, subject, from) {
			if err != nil {
				return err
			}
			if m.Seq > end {
				break
			}
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
