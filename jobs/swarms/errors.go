package swarms

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
)

// ErrHeld is returned by Session.Acquire while another session holds the lease. The other
// conditions of logs and leases are errors of package jobs: jobs.ErrFenced, jobs.ErrNotFound and
// jobs.ErrUnavailable.
var ErrHeld = errors.New("lease is held")

// TrimmedError is the error of a Reader whose first entry was removed.
type TrimmedError struct {
	Wanted, First uint64 // First is the first entry that is left
}

// Error implements error.
func (e *TrimmedError) Error() string {
	return fmt.Sprintf("entry %d is the first there is, %d is wanted: the log was trimmed", e.First, e.Wanted)
}

func invalid(format string, args ...any) *jobs.Error {
	return jobs.Errorf(jobs.CodeInvalid, format, args...)
}
