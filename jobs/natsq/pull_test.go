package natsq

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// queue is a connection to a server of its own, with n jobs waiting at the source that is returned.
func queue(t *testing.T, n int) (*Conn, wire.Source, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	s, err := server.Start(ctx, server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := Connect(ctx, natsconn.Options{InProcess: s, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	batch := make([]jobs.Job, n)
	for i := range batch {
		batch[i] = simpleJob(fmt.Sprint("j", i))
	}
	if n == 0 {
		return c, wire.Source{}, ctx
	}
	if err := c.SubmitBatch(ctx, batch); err != nil {
		t.Fatal(err)
	}
	src := wire.SourceOf(batch[0])
	for { // its consumer hears of what was stored some microseconds after it was
		cons, err := c.JS.Consumer(ctx, wire.JobStream(src.Pool), src.Consumer())
		if err != nil {
			t.Fatal(err)
		}
		if cons.CachedInfo().NumPending == uint64(n) {
			return c, src, ctx
		}
	}
}

func simpleJob(id string) jobs.Job {
	return jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k", Spec: []byte("1")}
}

// TestPullFull: what the server says behind a batch that is full is not taken for the answer to the next request.
func TestPullFull(t *testing.T) {
	c, s, ctx := queue(t, 60)
	p := &puller{nc: c.NC}
	defer p.close()
	for i := range 6 {
		got, err := p.pull(ctx, wire.JobStream(s.Pool), s.Consumer(), request{n: 10, maxBytes: 1 << 20})
		if err != nil || len(got) != 10 {
			t.Fatalf("request %d got %d jobs of 10, %v", i, len(got), err)
		}
		for k, m := range got {
			if want := s.Job(fmt.Sprint("j", 10*i+k)); m.Subject != want {
				t.Fatalf("request %d, job %d: %s, want %s", i, k, m.Subject, want)
			}
		}
	}
}
