package queue

import (
	"errors"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// TestFirstStands: the first result of a job is final, and a job without one is not found.
func TestFirstStands(t *testing.T) {
	_, c := jobstest.InProcess(t, natsconn.Open)
	rs := NewResults(c)
	if _, err := rs.Lookup(t.Context(), "a"); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatal(err)
	}
	for i, status := range []jobs.Status{jobs.Done, jobs.Failed} {
		first, err := rs.Put(t.Context(), jobs.Result{Version: jobs.Version, JobID: "a", Kind: "k", Status: status}, 60)
		if err != nil || first != (i == 0) {
			t.Fatalf("result %d is the first: %v, %v", i, first, err)
		}
	}
	if r, err := rs.Result(t.Context(), "a"); err != nil || r.Status != jobs.Done {
		t.Fatalf("%+v, %v", r, err)
	}
}
