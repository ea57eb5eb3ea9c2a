package gateway

import (
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// FuzzRequest: a request of a stranger to the gateway is taken or refused with a class.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"pool":"cpu","kind":"k","spec":1,"after":["a"],"on_failed_parent":"run"}`))
	f.Add([]byte(`{"name":"n","cron":"* * * * *","zone":"Europe/Berlin","missed":"once","job":{"pool":"cpu",` +
		`"kind":"k","spec":1}}`))
	f.Add([]byte(`[{"pool":"cpu"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := ParseSubmission(data)
		typed(t, err)
		if err == nil {
			typed(t, j.Validate())
		}
		_, err = queue.ParseSchedule(data)
		typed(t, err)
	})
}

// typed fails unless err, when there is one, is of a class that its receiver can act on.
func typed(t *testing.T, err error) {
	t.Helper()
	var e *jobs.Error
	var s *schema.Error
	if err != nil && !errors.As(err, &s) && (!errors.As(err, &e) || e.Code != jobs.CodeInvalid &&
		e.Code != jobs.CodeVersion) {
		t.Fatalf("an error of no class: %v", err)
	}
}
