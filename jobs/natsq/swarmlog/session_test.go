package swarmlog_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// leases is the bucket of leases as an operator sees it.
func leases(t *testing.T, s *server.Server) jetstream.KeyValue {
	t.Helper()
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	kv, err := js.KeyValue(t.Context(), "EXO_LEASES")
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func writes(t *testing.T, kv jetstream.KeyValue) uint64 {
	t.Helper()
	status, err := kv.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return status.(*jetstream.KeyValueBucketStatus).StreamInfo().State.LastSeq
}

// Dial connects by TCP, so the connection outlives a restart of the server.
func Dial(t *testing.T, s *server.Server) *natsq.Conn {
	t.Helper()
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL(), Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func lost(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s is not lost", what)
	}
}

func kept(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
		t.Fatalf("%s is lost", what)
	default:
	}
}

// TestSessionWrites: renewing 300 leases costs as many writes as renewing one.
func TestSessionWrites(t *testing.T) {
	t.Parallel()
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	c, kv := jobstest.Open(t, srv, natsq.Connect), leases(t, srv)
	const ttl = 300 * time.Millisecond
	s, err := c.Swarms.OpenSession(t.Context(), "a", ttl, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	for k := range 300 {
		if _, err := s.Acquire(t.Context(), fmt.Sprintf("many.%d", k)); err != nil {
			t.Fatal(err)
		}
	}
	began, before := time.Now(), writes(t, kv)
	testkit.Until(t, "six writes", func() bool { return writes(t, kv) >= before+6 }) // two times the ttl
	// A renewal that was late, because the machine was busy, is followed by one in time. One write for
	// each lease would be hundreds.
	if n, most := writes(t, kv)-before, uint64(time.Since(began)/(ttl/3))+6; n > most {
		t.Errorf("%d writes in %v, want at most %d", n, time.Since(began), most)
	}
	kept(t, "the session", s.Lost())
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestSessionRemoved: a session whose record another process has removed is lost with all its
// leases, and a lease that another took is lost alone.
func TestSessionRemoved(t *testing.T) {
	t.Parallel()
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	c, kv := jobstest.Open(t, srv, natsq.Connect), leases(t, srv)
	s, err := c.Swarms.OpenSession(t.Context(), "a", 300*time.Millisecond, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	var all []swarms.Lease
	for k := range 3 {
		l, err := s.Acquire(t.Context(), fmt.Sprintf("k.%d", k))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	if _, err := kv.Put(t.Context(), "k.1", []byte(`{"v":1,"holder":"b","session":"session/other"}`)); err != nil {
		t.Fatal(err)
	}
	lost(t, "the lease that was taken", all[1].Lost())
	kept(t, "another lease", all[0].Lost())
	kept(t, "the session", s.Lost())
	value, err := kv.Get(t.Context(), "k.0")
	if err != nil {
		t.Fatal(err)
	}
	var of struct{ Session string }
	if err := json.Unmarshal(value.Value(), &of); err != nil {
		t.Fatal(err)
	}
	if err := kv.Delete(t.Context(), of.Session); err != nil {
		t.Fatal(err)
	}
	lost(t, "the session", s.Lost())
	lost(t, "its lease", all[0].Lost())
	lost(t, "its lease", all[2].Lost())
	for _, l := range all {
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if held, err := c.Swarms.Leases(t.Context()); err != nil || len(held) != 0 { // session/other does not exist
		t.Errorf("%v, %v", held, err)
	}
}

// TestSessionOutlivesServer: a server that is away for longer than the ttl costs no session its
// leases, in whatever order the sessions reconnect.
func TestSessionOutlivesServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	port := jobstest.Port(t)
	srv, err := server.Start(t.Context(), server.Options{Dir: dir, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	const ttl = 2 * time.Second // a stall of the machine is shorter
	var all []swarms.Session
	var held []swarms.Lease
	for k := range 4 {
		s, err := Dial(t, srv).Swarms.OpenSession(t.Context(), fmt.Sprint("agent", k), ttl, jobstest.Quiet)
		if err != nil {
			t.Fatal(err)
		}
		l, err := s.Acquire(t.Context(), fmt.Sprintf("k.%d", k))
		if err != nil {
			t.Fatal(err)
		}
		all, held = append(all, s), append(held, l)
	}
	srv.Close()
	<-time.After(2 * ttl) // the time that it is away is what is tested
	srv, err = server.Start(t.Context(), server.Options{Dir: dir, Port: port})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Close)
	kv := leases(t, srv)
	before := writes(t, kv)
	testkit.Until(t, "four renewals of each session", func() bool { return writes(t, kv) >= before+16 })
	for k := range all {
		kept(t, fmt.Sprint("session ", k), all[k].Lost())
		kept(t, fmt.Sprint("lease ", k), held[k].Lost())
		if _, err := all[(k+1)%4].Acquire(t.Context(), fmt.Sprintf("k.%d", k)); !errors.Is(err, swarms.ErrHeld) {
			t.Errorf("lease %d: %v", k, err)
		}
	}
	for _, s := range all {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestLeaseOfEarlierProgram: a lease without a session belongs to its holder while its revision
// changes.
func TestLeaseOfEarlierProgram(t *testing.T) {
	t.Parallel()
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	c, kv := jobstest.Open(t, srv, natsq.Connect), leases(t, srv)
	const ttl = 2 * time.Second // a stall of the machine is shorter
	if _, err := kv.Put(t.Context(), "k.0", []byte("old")); err != nil {
		t.Fatal(err)
	}
	s, err := c.Swarms.OpenSession(t.Context(), "a", ttl, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	for range 6 { // it renews
		if _, err := s.Acquire(t.Context(), "k.0"); !errors.Is(err, swarms.ErrHeld) {
			t.Fatal(err)
		}
		if held, err := c.Swarms.Leases(t.Context()); err != nil || held["k.0"] != "old" {
			t.Fatal(held, err)
		}
		<-time.After(ttl / 3) // the period of a holder of an earlier version
		if _, err := kv.Put(t.Context(), "k.0", []byte("old")); err != nil {
			t.Fatal(err)
		}
	}
	testkit.Until(t, "the lease that nobody renews is free", func() bool {
		_, err := s.Acquire(t.Context(), "k.0")
		return err == nil
	})
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}
