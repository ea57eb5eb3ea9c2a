package queue

import (
	"errors"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestNoneAtOnce: the shortcut says that no job of a batch has a result only when that is so, and
// without it the batch is refused all the same.
func TestNoneAtOnce(t *testing.T) {
	c := inside(t)
	ctx := t.Context()
	store := func(id string) {
		t.Helper()
		if _, err := c.results.Put(ctx, jobs.Result{Version: jobs.Version, JobID: id, Kind: "k", Status: jobs.Done},
			60); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, all []jobs.Job, want bool) {
		t.Helper()
		if got := c.results.NoneAtOnce(ctx, all); got != want {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	refuse := func(all []jobs.Job, id string) {
		t.Helper()
		if err := c.SubmitBatch(ctx, all); !errors.Is(err, jobs.ErrExists) ||
			!strings.Contains(err.Error(), "job "+id+" ") {
			t.Errorf("%v, want that job %s exists", err, id)
		}
	}
	check("without any result nothing is sure", numbered("a", 8), false)
	store("x")
	check("none of them", numbered("a", 8), true)
	check("none of a whole batch", numbered("a", jobs.MaxBatch), true)
	store("a3")
	check("the last of all results is of one", numbered("a", 8), false)
	store("y")
	check("an older one is", numbered("a", 8), false)
	refuse(numbered("a", 8), "a3")
	check("none of others", numbered("b", 8), true)
	store("b0")
	m, err := c.conn.LastOnce(ctx, wire.ResultStream, wire.ResultSubject("b0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.conn.Remove(ctx, wire.ResultStream, m.Seq); err != nil {
		t.Fatal(err)
	}
	check("the last of all results is gone", numbered("b", 8), false)
	if err := c.SubmitBatch(ctx, numbered("b", 8)); err != nil {
		t.Error(err)
	}

	// A server that an earlier version has prepared.
	store("z")
	s, err := c.conn.JS.Stream(ctx, wire.ResultStream)
	if err != nil {
		t.Fatal(err)
	}
	old := s.CachedInfo().Config
	old.AllowDirect = false
	if _, err := c.conn.JS.UpdateStream(ctx, old); err != nil {
		t.Fatal(err)
	}
	check("nobody answers", numbered("c", 8), false)
	refuse(numbered("a", 8), "a3")
	if err := c.SubmitBatch(ctx, numbered("c", 8)); err != nil {
		t.Error(err)
	}
}
