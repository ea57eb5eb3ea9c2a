package swarmlog_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestLogLimits: an append that the server does not take says why at once, and stores nothing.
func TestLogLimits(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	l := c.Swarms.Log("s", 0, swarms.In)
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	entry := func(n uint64, size int) swarms.Entry {
		return swarms.Entry{Kind: swarms.EntryObserve, Ref: n, Data: make([]byte, size)}
	}
	if err := l.Append(t.Context(), 0, entry(1, 10)); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), 1, entry(2, 2<<20)); err == nil ||
		!strings.Contains(err.Error(), "bytes are more than the server takes") {
		t.Errorf("a large entry: %v", err)
	}
	js := jobstest.Open(t, s, natsconn.Open).JS
	st, err := js.Stream(t.Context(), "EXO_LOG_s_0_in")
	if err != nil {
		t.Fatal(err)
	}
	cfg := st.CachedInfo().Config
	cfg.MaxMsgs, cfg.Discard = 3, jetstream.DiscardNew
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if err := l.Append(t.Context(), 1, entry(2, 10), entry(3, 10)); err != nil {
		t.Fatal(err)
	}
	err = l.Append(t.Context(), 3, entry(4, 10))
	if err == nil || !strings.Contains(err.Error(), "the NATS server refuses") || errors.Is(err, jobs.ErrUnavailable) ||
		errors.Is(err, jobs.ErrFenced) {
		t.Errorf("an entry beyond the stream's limit: %v", err)
	}
	if last, err := l.Last(t.Context()); err != nil || last.Seq != 3 {
		t.Errorf("the log ends at %d: %v", last.Seq, err)
	}
}

// TestLogForeign: a message without the headers of an entry is an error for a reader, and fences
// writers.
func TestLogForeign(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	l := c.Swarms.Log("s", 0, swarms.In)
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	jobstest.Publish(t.Context(), t, s, "exo.log.s.0.in", []byte("theirs"))
	if _, err := l.Last(t.Context()); err == nil || jobs.AsError(err).Code != jobs.CodeInvalid {
		t.Errorf("the last entry: %v", err)
	}
	r, err := l.Read(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := r.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "log entry 1: header Exo-Ref") {
		t.Errorf("read: %v", err)
	}
}

// TestLogTrimmed: a reader that begins before the first remaining entry fails, and a reader that
// begins at it reads. Trimming and deleting twice is no error.
func TestLogTrimmed(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	l := c.Swarms.Log("s", 0, swarms.In)
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for n := range uint64(10) {
		if err := l.Append(t.Context(), n, swarms.Entry{Kind: "k", Ref: n + 1}); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := l.Trim(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
	}
	for from, want := range map[uint64]string{5: "entry 6 is the first there is, 5 is wanted", 1: "entry 6 is the " +
		"first there is, 1 is wanted", 6: "", 10: ""} {
		r, err := l.Read(t.Context(), from)
		if err != nil {
			t.Fatal(err)
		}
		e, err := r.Next(t.Context())
		if want != "" && (err == nil || !strings.Contains(err.Error(), want)) || want == "" &&
			(err != nil || e.Seq != from || e.Ref != from) {
			t.Errorf("from %d: %+v, %v", from, e, err)
		}
		for range 2 {
			r.Close()
		}
	}
	for range 2 {
		if err := l.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Trim(t.Context(), 6); err == nil {
		t.Error("a log that is not there was trimmed")
	}
}

// TestLogManyAtOnce: entries that are more than one atomic batch are all stored, in order, by their
// number and by their size.
func TestLogManyAtOnce(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	for name, c := range map[string]struct{ n, size int }{
		"255": {255, 1}, "256": {256, 1}, "257": {257, 1},
		"600": {600, 1}, "large": {40, 500 << 10},
	} {
		l := jobstest.Open(t, s, natsq.Connect).Swarms.Log("s"+name, 0, swarms.In)
		if err := l.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		var all []swarms.Entry
		for i := range c.n {
			all = append(all, swarms.Entry{
				Kind: "k", Ref: uint64(i + 1),
				Data: append(make([]byte, c.size), fmt.Sprint(i)...),
			})
		}
		for range 2 { // again, as after an acknowledgement that was lost
			if err := l.Append(t.Context(), 0, all...); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		if last, err := l.Last(t.Context()); err != nil || last.Seq != uint64(c.n) {
			t.Errorf("%s: the log ends at %d: %v", name, last.Seq, err)
		}
		r, err := l.Read(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.n {
			if e, err := r.Next(t.Context()); err != nil || e.Ref != uint64(i+1) ||
				string(e.Data) != string(all[i].Data) {
				t.Fatalf("%s: entry %d is %d: %v", name, i+1, e.Ref, err)
			}
		}
		r.Close()
	}
}

// TestLeases: the list of leases names each holder, and has no lease that was given back.
func TestLeases(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	held := func(want map[string]string) {
		t.Helper()
		got, err := c.Swarms.Leases(t.Context())
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%v, %v, want %v", got, err, want)
		}
	}
	held(map[string]string{})
	all := map[string]swarms.Lease{}
	for _, key := range []string{"a.0", "b.0"} {
		session, err := c.Swarms.OpenSession(t.Context(), "holder-of-"+key, 10*time.Second, jobstest.Quiet)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close(context.WithoutCancel(t.Context())) }()
		if all[key], err = session.Acquire(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	held(map[string]string{"a.0": "holder-of-a.0", "b.0": "holder-of-b.0"})
	if err := all["a.0"].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	held(map[string]string{"b.0": "holder-of-b.0"})
	if err := all["b.0"].Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	held(map[string]string{})
}
