package natsq

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// TestDeliveryRuns: a handler runs with its job, hears why it has to end, and leaves neither lease
// nor slot behind.
func TestDeliveryRuns(t *testing.T) {
	t.Parallel()
	began := make(chan context.Context, 1)
	wait := func(ctx context.Context, j jobs.Job, tell func(any)) (any, error) {
		tell(j.ID)
		jobs.Logger(ctx).Info("begun")
		began <- ctx
		if string(j.Spec) != `"wait"` {
			return j.ID, nil
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	d := newDelivered(t, map[string]jobs.Handler{"k": wait})
	unhealthy := errors.New("unhealthy")
	for name, c := range map[string]struct {
		end   func(stop context.CancelCauseFunc, j jobs.Job, m *nats.Msg) // what ends it
		late  bool
		reply string
		code  jobs.Code
	}{
		"done": {nil, false, "+ACK", ""},
		"drained": {
			func(stop context.CancelCauseFunc, _ jobs.Job, _ *nats.Msg) { stop(jobs.ErrDrain) },
			false, "-NAK", "",
		},
		"cancelled": {
			func(_ context.CancelCauseFunc, j jobs.Job, _ *nats.Msg) { _ = d.c.Queue.Cancel(t.Context(), j, false) },
			false, "+ACK", jobs.CodeCanceled,
		},
		"late": {func(context.CancelCauseFunc, jobs.Job, *nats.Msg) {}, true, "+ACK", jobs.CodeDeadline},
		"unhealthy": {
			func(_ context.CancelCauseFunc, _ jobs.Job, m *nats.Msg) { d.heartbeats.Lose(m, unhealthy) },
			false, "", "",
		},
	} {
		ctx, stop := context.WithCancelCause(t.Context())
		j := plain(strings.ReplaceAll(name, " ", ""))
		if c.end != nil {
			j.Spec = []byte(`"wait"`)
		}
		if c.late {
			j.Deadline = time.Now().Add(300 * time.Millisecond)
		}
		m := d.job(j, 1)
		over := make(chan struct{})
		go func() { defer close(over); d.do(ctx, m) }()
		select {
		case run := <-began:
			if at, ok := run.Deadline(); ok != c.late || ok && !at.Equal(j.Deadline) {
				t.Errorf("%s: its deadline is %v, %v", name, at, ok)
			}
		case <-time.After(2 * time.Minute):
			t.Fatal("it does not begin: ", name)
		}
		if c.end != nil {
			c.end(stop, j, m)
		}
		select {
		case <-over:
		case <-time.After(2 * time.Minute):
			t.Fatal("it does not end: ", name)
		}
		stop(nil)
		for c.reply != "" {
			r, err := d.replies.NextMsg(20 * time.Second)
			if err != nil {
				t.Fatal(name, err)
			}
			if string(r.Data) == "+WPI" { // of its lease
				continue
			}
			if r.Subject != m.Reply || string(r.Data) != c.reply {
				t.Errorf("%s: %q, want %q", name, r.Data, c.reply)
			}
			break
		}
		if lease, slot := d.holds(m); lease || slot {
			t.Errorf("%s: lease %v, slot %v", name, lease, slot)
		}
		r, err := d.c.Results.Lookup(t.Context(), j.ID)
		if (err == nil) != (c.reply == "+ACK") || err == nil &&
			((r.Error == nil) != (c.code == "") || r.Error != nil && r.Error.Code != c.code || r.Error == nil &&
				string(r.Output) != `"done"`) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	d.do(t.Context(), d.deliver("exo.job.cpu.k", 1, nil))
	if len(began) != 0 {
		t.Error("a message that is no job is run")
	}
	if x := (&task{span: tracing.NoSpan, log: slog.New(slog.DiscardHandler)}); d.logger(x) == nil {
		t.Error("a task without a logger")
	}
}
