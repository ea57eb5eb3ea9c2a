package serveprocess

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestTrim: the log of a detector of this process is trimmed to the snapshot before the last one,
// which stays with the last one alone.
func TestTrim(t *testing.T) {
	srv := jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	conn, quiet := jobstest.Open(t, srv, natsq.Connect), slog.New(slog.DiscardHandler)
	store, err := bucket.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	dev, err := host.Open(host.Options{Logger: quiet, Requested: "host", Reason: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpu", Device: dev, Queue: jobstest.Open(t, srv, natsq.Connect).Swarms, Logger: quiet, Snapshots: store,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = agent.Drain(ctx)
	})
	d := newDemo(conn, store, t.TempDir(), 1, quiet)
	if err := d.load(); err != nil {
		t.Fatal(err)
	}
	if fresh, err := d.make(t.Context()); err != nil || !fresh {
		t.Fatalf("made: %v, %v", fresh, err)
	}
	if fresh, err := d.make(t.Context()); err != nil || fresh {
		t.Errorf("made again: %v, %v", fresh, err)
	}
	if all, err := detectors.New(conn).List(t.Context()); err != nil || len(all) != 1 || all[0].Name != demoName {
		t.Errorf("the detectors are %+v, %v", all, err)
	}
	// The swarm that a CPU agent would make.
	client, err := swarmclient.New(swarmclient.Options{Swarms: conn.Swarms})
	if err != nil {
		t.Fatal(err)
	}
	d.spec.GroupCount = d.spec.MaxEntities
	s, err := client.Create(t.Context(), d.spec, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := func() uint64 {
		t.Helper()
		r, err := conn.Swarms.Swarm(t.Context(), s.ID())
		if err != nil {
			t.Fatal(err)
		}
		if r.Base == nil {
			return 0
		}
		return r.Base.Entry
	}
	var before uint64
	for i := range 4 {
		if err := d.trim(t.Context()); err != nil {
			t.Fatal(err)
		}
		if now := first(); i > 0 && now <= before {
			t.Errorf("after trim %d the log begins with entry %d, before with %d", i+1, now, before)
		} else {
			before = now
		}
	}
	if all, err := store.Folders(t.Context()); err != nil || len(all) != 2 {
		t.Errorf("the snapshots are %v, %v, want two", all, err)
	}
}
