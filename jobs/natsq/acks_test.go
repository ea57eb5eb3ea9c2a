package natsq

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// purging returns a batcher that does not give up waiting, so that what leaves the queue was
// purged. Its loop does not run: the test calls pass.
func purging(c *natsconn.Conn) *ackBatcher {
	r := newBatcher(c, slog.New(slog.DiscardHandler))
	r.maxWait = time.Hour
	return r
}

func fetch(ctx context.Context, t *testing.T, c *natsconn.Conn, s wire.Source, r *ackBatcher, n int) []*nats.Msg {
	t.Helper()
	p := natsconn.NewPuller(c.NC, nil)
	defer p.Close()
	msgs, err := p.Pull(ctx, s.Stream(), s.Consumer(), natsconn.PullRequest{Messages: n})
	if err != nil || len(msgs) != n {
		t.Fatalf("%d jobs of %d, %v", len(msgs), n, err)
	}
	r.Track(s, msgs)
	return msgs
}

func retire(t *testing.T, r *ackBatcher, msgs ...*nats.Msg) {
	t.Helper()
	for _, m := range msgs {
		if err := r.Done(m, true); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPurge(t *testing.T) {
	c, s, ctx := queueOf(t, 30)
	r := purging(c)
	a := fetch(ctx, t, c, s, r, 10)
	b := fetch(ctx, t, c, s, r, 10)
	retire(t, r, b...)
	if !r.pass(false) || len(queued(ctx, t, c, s)) != 30 {
		t.Fatalf("jobs without a result before them: %v", queued(ctx, t, c, s))
	}
	retire(t, r, a[:9]...)
	if !r.pass(false) || len(queued(ctx, t, c, s)) != 30 {
		t.Fatalf("one of a run has no result: %v", queued(ctx, t, c, s))
	}
	retire(t, r, a[9])
	r.nextPurge = time.Time{}
	if r.pass(false) || len(queued(ctx, t, c, s)) != 10 {
		t.Fatalf("two whole runs: %v", queued(ctx, t, c, s))
	}
	if len(r.runs)+len(r.members) != 0 {
		t.Errorf("kept %d runs, %d jobs", len(r.runs), len(r.members))
	}
	cons, err := c.JS.Consumer(ctx, s.Stream(), s.Consumer())
	if err != nil {
		t.Fatal(err)
	}
	if i := cons.CachedInfo(); i.NumAckPending != 0 || i.NumPending != 10 {
		t.Errorf("the consumer has %d unacknowledged, %d to come", i.NumAckPending, i.NumPending)
	}
	if got := fetch(ctx, t, c, s, r, 10); got[0].Subject != s.Job("j20") {
		t.Errorf("the next job is %s", got[0].Subject)
	}
}

// TestJobsOfOthers: jobs that another worker has are never purged, and what waits for them is
// acknowledged in the end.
func TestJobsOfOthers(t *testing.T) {
	c, s, ctx := queueOf(t, 20)
	other, r := purging(c), purging(c)
	theirs := fetch(ctx, t, c, s, other, 4)
	mine := fetch(ctx, t, c, s, r, 8)
	retire(t, r, mine...)
	r.pass(false)
	if got := queued(ctx, t, c, s); len(got) != 20 {
		t.Fatalf("%v", got)
	}
	retire(t, other, theirs[:3]...) // too few for a purge: acknowledged
	if got := queued(ctx, t, c, s); len(got) != 20 {
		t.Fatalf("acknowledged before a fetch or a pass: %v", got)
	}
	other.pass(false)
	r.maxWait = 0
	if r.pass(false) {
		t.Error("something waits")
	}
	awaitQueued(ctx, t, c, s, "j3", "j12", "j13", "j14", "j15", "j16", "j17", "j18", "j19")
}

// TestSingleJobs: a job of a small fetch leaves the queue with the next fetch, without one by
// itself, and at the end of the worker.
func TestSingleJobs(t *testing.T) {
	c, s, ctx := queueOf(t, 4)
	r := purging(c)
	retire(t, r, fetch(ctx, t, c, s, r, 1)...)
	second := fetch(ctx, t, c, s, r, 1)
	awaitQueued(ctx, t, c, s, "j1", "j2", "j3")
	r.ended.Go(r.loop)
	defer r.Close()
	retire(t, r, second...)
	awaitQueued(ctx, t, c, s, "j2", "j3")
	third := fetch(ctx, t, c, s, r, 1)
	retire(t, r, third...)
	r.Close()
	awaitQueued(ctx, t, c, s, "j3")
}

// TestReturnedJobs: a job that went back to the queue stays there, and so do jobs that another
// worker got in between.
func TestReturnedJobs(t *testing.T) {
	c, s, ctx := queueOf(t, 24)
	r := purging(c)
	msgs := fetch(ctx, t, c, s, r, 12)
	retire(t, r, msgs[:5]...)
	r.Returned(msgs[5])
	retire(t, r, msgs[6:]...)
	if !r.pass(false) {
		t.Error("nothing waits behind the job that was given back")
	}
	if got := queued(ctx, t, c, s); len(got) != 19 || got[0] != "j5" {
		t.Fatalf("%v", got)
	}
	r.pass(true)
	want := []string{"j5"}
	for i := 12; i < 24; i++ {
		want = append(want, fmt.Sprint("j", i))
	}
	awaitQueued(ctx, t, c, s, want...)
}

// TestRuns: a run has no gap, and nothing that was handed out before.
func TestRuns(t *testing.T) {
	type delivery struct{ tries, seq, number int }
	several := func(n, seq, number int) (all []delivery) {
		for i := range n {
			all = append(all, delivery{1, seq + 2*i, number + i})
		}
		return all
	}
	for name, tc := range map[string]struct {
		got  []delivery
		want []int // lengths of the runs
	}{
		"whole":           {several(9, 1, 1), []int{9}},
		"few":             {several(7, 1, 1), nil},
		"again first":     {append([]delivery{{2, 1, 9}}, several(9, 20, 10)...), []int{9}},
		"again between":   {slices.Concat(several(8, 1, 1), []delivery{{2, 3, 9}}, several(8, 40, 10)), []int{8, 8}},
		"others between":  {slices.Concat(several(8, 1, 1), several(9, 40, 11)), []int{8, 9}},
		"too few between": {slices.Concat(several(8, 1, 1), several(3, 40, 11), several(8, 60, 15)), []int{8, 8}},
		"numbers go back": {slices.Concat(several(8, 50, 1), several(8, 1, 9)), []int{8, 8}},
	} {
		r := newBatcher(&natsconn.Conn{Lease: time.Minute}, slog.New(slog.DiscardHandler))
		var msgs []*nats.Msg
		for _, d := range tc.got {
			msgs = append(msgs, &nats.Msg{
				Sub: &nats.Subscription{}, Subject: "s",
				Reply: fmt.Sprintf("$JS.ACK.S.C.%d.%d.%d.1.0", d.tries, d.seq, d.number),
			})
		}
		r.Track(wire.Source{}, msgs)
		var got []int
		for _, run := range r.runs[wire.Source{}] {
			got = append(got, len(run.jobs))
		}
		if !slices.Equal(got, tc.want) {
			t.Errorf("%s: runs of %v, want %v", name, got, tc.want)
		}
	}
}

// TestReusedNumbers: a server that has lost the end of its stream gives the same numbers to other
// jobs. Those stay.
func TestReusedNumbers(t *testing.T) {
	before, s, ctx := queueOf(t, 10)
	fresh, _ := connected(t)
	c := fresh.Conn
	r := purging(c)
	retire(t, r, fetch(ctx, t, before, s, r, 10)...)
	// The first is the same job, as when a submitter repeats some of what was lost.
	ids := []string{"j0", "n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8", "n9"}
	for _, id := range ids {
		submit(ctx, t, c, id)
	}
	r.pass(false)
	if got := queued(ctx, t, c, s); !slices.Equal(got, ids) {
		t.Errorf("jobs without a result were removed: %v are left", got)
	}
}
