package natsconn_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// TestPullFull: what the server says after a full batch is not taken for the answer to the next
// request.
func TestPullFull(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, c := jobstest.InProcess(t, natsq.Connect)
	var batch []jobs.Job
	for i := range 60 {
		batch = append(batch, jobstest.Job(fmt.Sprint("j", i), "k"))
	}
	if err := c.Queue.SubmitBatch(ctx, batch); err != nil {
		t.Fatal(err)
	}
	s := wire.SourceOf(batch[0])
	testkit.Until(t, "the consumer knows of the jobs", func() bool { // some microseconds after they are stored
		cons, err := c.JS.Consumer(ctx, s.Stream(), s.Consumer())
		return err == nil && cons.CachedInfo().NumPending == uint64(len(batch))
	})
	p := natsconn.NewPuller(c.NC, nil)
	defer p.Close()
	_, err := p.Pull(ctx, s.Stream(), "none", natsconn.PullRequest{Messages: 1})
	if !errors.Is(err, natsconn.ErrNoConsumer) {
		t.Fatalf("a consumer that does not exist: %v", err)
	}
	for i := range 6 {
		got, err := p.Pull(ctx, s.Stream(), s.Consumer(), natsconn.PullRequest{Messages: 10, MaxBytes: 1 << 20})
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
