package gateway

import (
	"testing"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// FuzzRequest: a request of a stranger to the gateway is taken or refused with a class.
func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"pool":"cpu","kind":"k","spec":1,"after":["a"],"on_failed_parent":"run"}`))
	f.Add([]byte(`{"name":"n","cron":"* * * * *","zone":"Europe/Berlin","missed":"once","job":{"pool":"cpu",` +
		`"kind":"k","spec":1}}`))
	f.Add([]byte(`[{"pool":"cpu"}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		j, err := ParseSubmission(data)
		jobstest.Typed(t, err)
		if err == nil {
			jobstest.Typed(t, j.Validate())
		}
		_, err = queue.ParseSchedule(data)
		jobstest.Typed(t, err)
	})
}
