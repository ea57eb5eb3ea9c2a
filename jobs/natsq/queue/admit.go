package queue

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs"
)

// Admit fails with jobs.ErrFull if the tenant of a job may have no more in the queue. Otherwise the
// job counts as submitted: the caller stores it.
func (q *Queue) Admit(ctx context.Context, j jobs.Job) error { return q.control.Admit(ctx, j) }
