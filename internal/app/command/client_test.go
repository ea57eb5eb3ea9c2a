package command

import (
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestJobFailed: the error names the job once, keeps its code, and leaves the cause as it is.
func TestJobFailed(t *testing.T) {
	for message, want := range map[string]string{
		"job a: stream spec: no columns": "job a failed: stream spec: no columns",
		"no column value":                "job a failed: no column value",
		"job ab: gone":                   "job a failed: job ab: gone",
	} {
		cause := &jobs.Error{Code: jobs.CodeInvalid, Message: message}
		err := JobFailed("a", cause)
		var e *jobs.Error
		if err.Error() != want || !errors.As(err, &e) || e.Code != jobs.CodeInvalid || cause.Message != message {
			t.Errorf("%q: %v (%+v)", message, err, cause)
		}
	}
}
