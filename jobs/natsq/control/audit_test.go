package control_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/control"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

var me = control.Actor{User: "bob", From: "bob@host", Via: "exoswarm"}

// entries lists the audit since a time.
func entries(t *testing.T, c *natsq.Conn, since time.Time) (all []control.AuditEntry) {
	t.Helper()
	if err := c.Audit.List(t.Context(), since, func(e control.AuditEntry) bool {
		all = append(all, e)
		return true
	}); err != nil {
		t.Fatalf("c.Audit.List: %v", err)
	}
	return all
}

// TestAudit: an action has its intent before it and its outcome after it, a failure has its error
// without secrets, and the list is newest first and begins at a time.
func TestAudit(t *testing.T) {
	_, c := jobstest.InProcess(t, natsq.Connect)
	ctx := t.Context()
	during := ""
	if err := c.Audit.Do(ctx, me, control.Action{Action: "a", Object: "1", Detail: "d", Digest: "x"},
		func(context.Context) error {
			during = entries(t, c, time.Time{})[0].Outcome
			return nil
		}); err != nil {
		t.Fatalf("c.Audit.Do: %v", err)
	}
	if during != control.OutcomeUnknown {
		t.Errorf("during the action the audit has outcome %q, want %q", during, control.OutcomeUnknown)
	}
	between := entries(t, c, time.Time{})[0].At.Add(time.Nanosecond)
	failed := errors.New("no way to nats://user:hunter2@host: " + strings.Repeat("x", 10_000))
	if err := c.Audit.Do(ctx, me, control.Action{Action: "b", Object: "2"}, func(context.Context) error {
		return failed
	}); !errors.Is(err, failed) {
		t.Errorf("the error of the action is %v, want its own", err)
	}
	if _, err := c.Audit.Begin(ctx, me, control.Action{Action: "c", Object: "3"}); err != nil {
		t.Fatalf("c.Audit.Begin: %v", err)
	}
	all := entries(t, c, time.Time{})
	if len(all) != 3 {
		t.Fatalf("%d entries, want 3: %+v", len(all), all)
	}
	for i, want := range []string{"c 3 unknown", "b 2 failed", "a 1 done"} {
		e := all[i]
		if got := e.Action + " " + e.Object + " " + e.Outcome; got != want || e.User != "bob" || e.From != "bob@host" ||
			e.Via != "exoswarm" || e.At.IsZero() || e.Ended.IsZero() != (e.Outcome == control.OutcomeUnknown) {
			t.Errorf("entry %d is %+v, want %q", i, e, want)
		}
	}
	if e := all[1].Error; strings.Contains(e, "hunter2") || len(e) > 3000 || !strings.Contains(e, "no way") {
		t.Errorf("the error of a failed action is %q, want one without the password and bounded", e)
	}
	if e := all[2]; e.Detail != "d" || e.Digest != "x" {
		t.Errorf("%+v, want its detail and digest", e)
	}
	if late := entries(t, c, between); len(late) != 2 || late[1].Action != "b" {
		t.Errorf("since the first: %+v, want the two later ones", late)
	}
}

// TestNotWritten: without a stream, or after a cancellation, the action is not done.
func TestNotWritten(t *testing.T) {
	s := jobstest.Start(t, server.Options{Dir: t.TempDir()})
	c := jobstest.Open(t, s, natsq.Connect)
	ended, end := context.WithCancel(t.Context())
	end()
	done := false
	act := func(context.Context) error { done = true; return nil }
	if err := c.Audit.Do(ended, me, control.Action{Action: "a"}, act); !errors.Is(err, control.ErrNotWritten) || done {
		t.Errorf("with a context that ended: %v, done %v, want %v", err, done, control.ErrNotWritten)
	}
	if err := jobstest.Open(t, s, natsconn.Open).JS.DeleteStream(t.Context(), "EXO_AUDIT"); err != nil {
		t.Fatalf("DeleteStream: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := c.Audit.Do(short, me, control.Action{Action: "a"}, act); !errors.Is(err, control.ErrNotWritten) || done {
		t.Errorf("without a stream: %v, done %v, want %v", err, done, control.ErrNotWritten)
	}
	if err := c.Audit.List(t.Context(), time.Time{}, nil); err == nil {
		t.Error("a list without a stream succeeds, want an error")
	}
}

// TestKept: no client deletes or purges records, also without accounts, and what others wrote there
// does not break the list.
func TestKept(t *testing.T) {
	s := jobstest.Start(t, server.Options{Dir: t.TempDir()})
	c := jobstest.Open(t, s, natsq.Connect)
	if err := c.Audit.Do(t.Context(), me, control.Action{Action: "a"}, func(context.Context) error {
		return nil
	}); err != nil {
		t.Fatalf("c.Audit.Do: %v", err)
	}
	for _, text := range []string{"", "{", `{"v":1}`, `{"v":99,"id":"x","phase":"intent"}`} {
		jobstest.Publish(t.Context(), t, s, "exo.audit", []byte(text))
	}
	st, err := jobstest.Open(t, s, natsconn.Open).JS.Stream(t.Context(), "EXO_AUDIT")
	if err != nil {
		t.Fatalf("Stream: %v", err)
	}
	if err := st.Purge(t.Context()); err == nil {
		t.Error("the audit was purged, want a refusal")
	}
	if err := st.DeleteMsg(t.Context(), 1); err == nil {
		t.Error("a record was deleted, want a refusal")
	}
	if all := entries(t, c, time.Time{}); len(all) != 1 || all[0].Outcome != control.OutcomeDone {
		t.Errorf("%+v, want the one action", all)
	}
	if limits := st.CachedInfo().Config; limits.MaxAge <= 0 || limits.MaxBytes <= 0 {
		t.Errorf("age %v and bytes %d are not bounded", limits.MaxAge, limits.MaxBytes)
	}
}
