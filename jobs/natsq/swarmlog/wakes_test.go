package swarmlog_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// woken waits for a key, for less than a sweep would take to find what no copy has told of.
func woken(t *testing.T, w swarms.Wakes, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if key, err := w.Next(ctx); err != nil || key != want {
		t.Fatalf("woken %q, %v, want %q", key, err, want)
	}
}

func quiet(t *testing.T, w swarms.Wakes) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if key, err := w.Next(ctx); err == nil {
		t.Fatalf("%s was woken", key)
	}
}

// TestWakes: a log that is watched wakes its key once when something is appended, at once when it
// was before, and when it is gone. Logs that are watched have no goroutines.
func TestWakes(t *testing.T) {
	c := jobstest.Open(t, jobstest.Start(t, server.Options{Port: server.InProcess}), natsq.Connect)
	w := c.Swarms.OpenWakes()
	defer w.Close()
	const n = 50
	var logs []swarms.Log
	for k := range n {
		l := c.Swarms.Log("s", k, swarms.In)
		if err := l.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		logs = append(logs, l)
	}
	before := runtime.NumGoroutine() // so the test is not parallel
	for k, l := range logs {
		if err := w.Add(t.Context(), fmt.Sprint(k), l, 0); err != nil {
			t.Fatal(err)
		}
	}
	if more := runtime.NumGoroutine() - before; more > 5 {
		t.Errorf("%d watched logs have %d goroutines", n, more)
	}
	quiet(t, w)
	e := swarms.Entry{Kind: "k", Data: []byte("x")}
	if err := logs[7].Append(t.Context(), 0, e, e, e); err != nil { // as one
		t.Fatal(err)
	}
	woken(t, w, "7")
	if err := logs[7].Append(t.Context(), 3, e); err != nil {
		t.Fatal(err)
	}
	quiet(t, w) // it is not watched any more
	if err := w.Add(t.Context(), "7", logs[7], 3); err != nil {
		t.Fatal(err)
	}
	woken(t, w, "7")
	w.Remove("8")
	if err := logs[8].Append(t.Context(), 0, e); err != nil {
		t.Fatal(err)
	}
	quiet(t, w)
	if err := logs[9].Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(t.Context(), "9", logs[9], 0); err != nil {
		t.Fatal(err)
	}
	woken(t, w, "9")
}

// TestWakesSweep: a sweep finds what was appended while the connection was away, and the appends of
// a log without copies.
func TestWakesSweep(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := jobstest.Port(t)
	srv, err := server.Start(t.Context(), server.Options{Dir: dir, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	c := Dial(t, srv)
	w := c.Swarms.OpenWakes()
	defer w.Close()
	for k := range 300 { // more than a page of the server's list
		l := c.Swarms.Log("s", k, swarms.In)
		if err := l.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(t.Context(), fmt.Sprint(k), l, 0); err != nil {
			t.Fatal(err)
		}
	}
	raw := jobstest.Raw(t, natsconn.Options{InProcess: srv})
	other, js := raw.NC, raw.JS
	s, err := js.Stream(t.Context(), "EXO_LOG_s_280_in")
	if err != nil {
		t.Fatal(err)
	}
	bare := s.CachedInfo().Config
	bare.RePublish = nil
	if _, err := js.UpdateStream(t.Context(), bare); err != nil {
		t.Fatal(err)
	}
	if err := c.Swarms.Log("s", 280, swarms.In).Append(t.Context(), 0, swarms.Entry{Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	quiet(t, w) // nobody says so
	other.Close()
	srv.Close() // the client comes back to another server of the same streams
	srv, err = server.Start(t.Context(), server.Options{Dir: dir, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	woken(t, w, "280")
	if err := c.Swarms.Log("s", 5, swarms.In).Append(t.Context(), 0, swarms.Entry{Kind: "k"}); err != nil {
		t.Fatal(err)
	}
	woken(t, w, "5")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
