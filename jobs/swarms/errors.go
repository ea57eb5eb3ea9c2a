package swarms

import (
	"errors"

	"github.com/exoswarm/exoswarm/jobs"
)

// ErrHeld is returned by Session.Acquire while another session holds the lease. The other
// conditions of logs and leases are errors of package jobs: jobs.ErrFenced, jobs.ErrNotFound and
// jobs.ErrUnavailable.
var ErrHeld = errors.New("lease is held")

// invalid returns an error of jobs.CodeInvalid.
func invalid(format string, args ...any) *jobs.Error {
	return jobs.Errorf(jobs.CodeInvalid, format, args...)
}
