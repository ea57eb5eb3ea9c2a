package server

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// heard tells of log records whose message has some text.
type heard struct {
	slog.Handler
	text string
	told chan struct{}
}

func (h heard) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.text) {
		select {
		case h.told <- struct{}{}:
		default:
		}
	}
	return nil
}

func (h heard) Enabled(context.Context, slog.Level) bool { return true }
func (h heard) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h heard) WithGroup(string) slog.Handler            { return h }

// TestRefuse: while a server stores nothing, submissions fail with that reason, other calls wait
// for their patience, and a finished job keeps its result until there is room, in its first
// attempt. Then everything continues.
func TestRefuse(t *testing.T) {
	t.Run("open", func(t *testing.T) { refuse(t, "", natsconn.Login{}) })
	t.Run("accounts", func(t *testing.T) {
		f, err := auth.Open(filepath.Join(t.TempDir(), "auth"), true)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.Apply(auth.Options{Tenants: []string{"acme"}}); err != nil {
			t.Fatal(err)
		}
		refuse(t, f.ConfigFile(), natsconn.Login{Credentials: f.CredsFile(auth.Operator)})
	})
}

func refuse(t *testing.T, accounts string, login natsconn.Login) {
	s, err := Start(t.Context(), Options{Dir: t.TempDir(), Auth: accounts})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	conn, err := natsq.Connect(ctx, natsconn.Options{URL: s.URL(), Login: login, Patience: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	waits := heard{slog.DiscardHandler, "the NATS server has no room", make(chan struct{}, 1)}
	begun, release := make(chan struct{}, 1), make(chan struct{})
	w, err := conn.Work(ctx, natsq.WorkerOptions{
		Name: "w", Pool: jobs.PoolCPU, Logger: slog.New(waits),
		Handlers: map[string]jobs.Handler{
			"k": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
				select {
				case begun <- struct{}{}:
				case <-ctx.Done():
				}
				select {
				case <-release:
				case <-ctx.Done():
				}
				return 1, nil
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	job := func(id string) jobs.Job {
		return jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "k", Spec: []byte("1")}
	}
	wait := func(what string, event <-chan struct{}) {
		t.Helper()
		select {
		case <-event:
		case <-ctx.Done():
			t.Fatal("not in time: ", what)
		}
	}
	if err := conn.Queue.Submit(ctx, job("before")); err != nil {
		t.Fatal(err)
	}
	wait("the job begins", begun)
	held := limits{}
	s.refuse(held)
	s.refuse(held) // again and again, as long as there is no room
	if err := conn.Queue.Submit(ctx, job("a")); !errors.Is(err, jobs.ErrFull) || jobs.RetryAfter(err) <= 0 ||
		!strings.Contains(err.Error(), "free some of it") {
		t.Errorf("a job: %v", err)
	}
	if err := conn.Queue.SubmitBatch(ctx, []jobs.Job{job("b"), job("c")}); !errors.Is(err, jobs.ErrFull) {
		t.Errorf("several: %v", err)
	}
	later := job("d")
	later.NotBefore = time.Now().Add(time.Hour)
	if err := conn.Queue.Submit(ctx, later); !errors.Is(err, jobs.ErrFull) {
		t.Errorf("a delayed one: %v", err)
	}
	child := job("e")
	child.After = []string{"before"}
	if err := conn.Queue.Submit(ctx, child); !errors.Is(err, jobs.ErrFull) {
		t.Errorf("one that waits for another: %v", err)
	}
	if _, err := conn.Streams.Push(ctx, "name", "key", [][]byte{[]byte("{}\n")}); !errors.Is(err, jobs.ErrFull) {
		t.Errorf("rows: %v", err)
	}
	if err := conn.Control.Pause(ctx, jobs.PoolGPU, ""); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("a pause: %v", err)
	}
	if _, err := conn.Queue.Stats(ctx, jobs.PoolCPU); err != nil {
		t.Errorf("a question: %v", err)
	}
	close(release)
	wait("the result waits", waits.told)
	s.accept(held)
	if r, err := conn.Results.Result(ctx, "before"); err != nil || r.Status != jobs.Done || r.Attempts != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if err := conn.Queue.Submit(ctx, job("a")); err != nil {
		t.Errorf("with room again: %v", err)
	}
	// A worker that ends does not wait for room.
	wait("the next job begins", begun)
	s.refuse(held)
	w.Stop()
}
