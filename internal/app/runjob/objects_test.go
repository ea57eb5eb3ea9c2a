package runjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestRemoved has the table of the ends of a command: which of them remove the objects of the job.
func TestRemoved(t *testing.T) {
	failed := error(&jobFailure{jobs.Errorf(jobs.CodeInput, "no valid row")})
	refused := fmt.Errorf("submit: %w", jobs.Errorf(jobs.CodeInvalid, "no"))
	interrupted := withdrawnError{command.ErrInterrupted}
	for _, c := range []struct {
		what      string
		at        stage
		own, sole bool
		err       error
		want      bool
	}{
		{"an input cannot be sent", sending, true, true, jobs.ErrUnavailable, true},
		{"the job is refused", submitting, true, true, refused, true},
		{"the server is lost while the job is submitted", submitting, true, true, jobs.ErrUnavailable, false},
		{"Ctrl-C while the job is submitted", submitting, true, true, context.Canceled, false},
		{"the id is taken, as after a reply that was lost", submitting, true, true, jobs.ErrExists, false},
		{"detached", waiting, true, true, nil, false},
		{"the server is lost", waiting, true, true, fmt.Errorf("lost: %w", errNotOver), false},
		{"Ctrl-C, and the agent says nothing", waiting, true, true, fmt.Errorf("silent: %w", errNotOver), false},
		{"Ctrl-C, and no agent had the job", waiting, true, true, interrupted, true},
		{"no agent has taken the job", waiting, true, true, withdrawnError{errors.New("no agent")}, true},
		{"the job failed, and the inputs are here", waiting, true, true, failed, true},
		{"the job failed, and can be repeated", waiting, true, false, failed, false},
		{"the job failed, of another process", waiting, false, true, failed, false},
		{"the result cannot be read", waiting, true, true, errors.New("result of job a"), false},
		{"attached, and Ctrl-C", waiting, false, false, command.ErrInterrupted, false},
		{"the output cannot be fetched", delivering, true, true, jobs.ErrUnavailable, false},
		{"the output cannot be written", delivering, true, true, errors.New("no space left"), false},
		{"Ctrl-C while a FIFO has no reader", delivering, true, true, command.ErrInterrupted, false},
		{"attached, and the output cannot be written", delivering, false, false, errors.New("no space left"), false},
		{"delivered", delivered, true, true, nil, true},
		{"delivered, of a run that was interrupted", delivered, true, true, command.ErrInterrupted, true},
		{"attached and delivered", delivered, false, false, nil, true},
	} {
		if got := (&objects{at: c.at, own: c.own, sole: c.sole}).removed(c.err); got != c.want {
			t.Errorf("%s: removed is %v, want %v", c.what, got, c.want)
		}
	}
}

// TestBusyAgent: a run ends for want of an agent if nobody has its job, and not while an agent has
// it that says nothing.
func TestBusyAgent(t *testing.T) {
	hint, patience := hintAfter, pickup
	hintAfter, pickup = time.Millisecond, 10*time.Millisecond
	t.Cleanup(func() { hintAfter, pickup = hint, patience })
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	conn, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	show, err := newProgress("none", t.Output())
	if err != nil {
		t.Fatal(err)
	}
	submit := func() jobs.Job {
		t.Helper()
		j := jobs.Job{
			Version: jobs.Version, ID: natsconn.NewID(), Pool: jobs.PoolCPU, Kind: "slow", Spec: json.RawMessage("1"),
			Submitted: time.Now().UTC(),
		}
		if err := conn.Queue.Submit(t.Context(), j); err != nil {
			t.Fatal(err)
		}
		return j
	}
	j := submit()
	_, err = await(t.Context(), t.Context(), conn, j, show, true)
	var gone withdrawnError
	if !errors.As(err, &gone) || !strings.Contains(err.Error(), "no CPU agent has taken the job") {
		t.Errorf("without an agent: %v", err)
	}
	if _, err := conn.Queue.Find(t.Context(), j.ID); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the job that nobody took: %v", err)
	}
	j = submit()
	begun, release := make(chan struct{}), make(chan struct{})
	w, err := conn.Work(t.Context(), natsq.WorkerOptions{
		Name: "cpu", Pool: jobs.PoolCPU, Logger: slog.New(slog.DiscardHandler),
		Handlers: map[string]jobs.Handler{"slow": func(context.Context, jobs.Job, func(any)) (any, error) {
			close(begun)
			<-release
			return map[string]int{"decisions": 1}, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Drain(context.Background()) })
	<-begun
	time.AfterFunc(2500*time.Millisecond, func() { close(release) }) // two looks of await
	if _, err := await(t.Context(), t.Context(), conn, j, show, true); err != nil {
		t.Errorf("with an agent that says nothing: %v", err)
	}
}
