package natsq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// logged reads what is kept of a job's log: attempt and message of each line.
func logged(t *testing.T, c *natsq.Conn, id string) (lines []string, dropped int) {
	t.Helper()
	err := c.Logs.Logs(t.Context(), id, false, func(l jobs.LogLines) error {
		dropped = max(dropped, l.Dropped)
		for _, raw := range l.Lines {
			var line jobs.LogLine
			if err := json.Unmarshal(raw, &line); err != nil {
				return err
			}
			lines = append(lines, fmt.Sprint(l.Attempt, " ", line.Message))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines, dropped
}

// TestLogs: what handlers log can be read by job and attempt, with its fields, and a retry says
// why.
func TestLogs(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{
		Name: "w",
		Handlers: map[string]jobs.Handler{"one": func(ctx context.Context, j jobs.Job, _ func(any)) (any, error) {
			jobs.Logger(ctx).With("a", 1).WithGroup("g").Info("hello <you>", "b", "two")
			jobs.Logger(ctx).Debug("not kept")
			if !j.LastAttempt {
				return nil, jobs.Retry(errors.New("not yet"))
			}
			return 1, nil
		}},
		Batches: map[string]natsq.Batch{"many": {
			Max: 4,
			Handle: func(ctx context.Context, batch []jobs.Job, _ func(int, any)) ([]jobs.Outcome, error) {
				for i, j := range batch {
					jobs.LoggerOf(ctx, i).Info("I am " + j.ID)
				}
				jobs.LoggerOf(ctx, len(batch)).Info("nobody")
				return make([]jobs.Outcome, len(batch)), nil
			},
		}},
	})
	one := jobstest.Job("one", "one")
	one.MaxAttempts = 2
	if err := c.Queue.Submit(t.Context(), one); err != nil {
		t.Fatal(err)
	}
	if err := c.Queue.SubmitBatch(t.Context(), []jobs.Job{
		jobstest.Job("m1", "many"),
		jobstest.Job("m2", "many"),
	}); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string][]string{
		"one": {"1 hello <you>", "1 job will be tried again", "2 hello <you>"}, "m1": {"1 I am m1"},
		"m2": {"1 I am m2"},
	} {
		jobstest.Await(t, c.Results, id)
		// it is stored concurrently with the result
		until(t, func() bool { got, _ := logged(t, c, id); return len(got) >= len(want) })
		if got, dropped := logged(t, c, id); strings.Join(got, ";") != strings.Join(want, ";") || dropped != 0 {
			t.Errorf("%s: %q, %d dropped", id, got, dropped)
		}
	}
	first := ""
	stop := errors.New("enough")
	err := c.Logs.Logs(t.Context(), "one", false, func(l jobs.LogLines) error {
		first = string(l.Lines[0])
		return stop
	})
	if !errors.Is(err, stop) || !strings.HasSuffix(first, `"level":"INFO","msg":"hello <you>","a":1,"g":{"b":"two"}}`) {
		t.Errorf("%s, %v", first, err)
	}
	if err := c.Logs.Logs(t.Context(), "nobody", true, nil); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("of a job that is not there: %v", err)
	}
}

// TestLogsFollow: a follower sees lines while the job runs, and ends with it.
func TestLogsFollow(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	c := jobstest.Open(t, s, natsq.Connect)
	seen := make(chan struct{})
	work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{
		Name: "w",
		Handlers: map[string]jobs.Handler{"k": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
			jobs.Logger(ctx).Info("begun")
			select {
			case <-seen:
				return 1, nil
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}},
	})
	if err := c.Queue.Submit(t.Context(), jobstest.Job("f", "k")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	n := 0
	if err := c.Logs.Logs(ctx, "f", true, func(jobs.LogLines) error {
		if n++; n == 1 {
			close(seen)
		}
		return nil
	}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	if _, err := c.Results.Lookup(t.Context(), "f"); err != nil {
		t.Errorf("the follower ended before the job: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	j := jobstest.Job("never", "other")
	j.NotBefore = time.Now().Add(time.Hour)
	if err := c.Queue.Submit(ctx, j); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := c.Logs.Logs(ctx, "never", true, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("following ends with its context: %v", err)
	}
}

// TestLogsBounds: a handler that logs without end is not held up, and what is kept of it is
// bounded; what was left out is counted.
func TestLogsBounds(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	const calls = 20_000
	reg := prometheus.NewRegistry()
	metrics, err := natsq.NewMetrics(reg)
	if err != nil {
		t.Fatal(err)
	}
	work(t, jobstest.Open(t, s, natsq.Connect), natsq.WorkerOptions{
		Name: "w", Metrics: metrics,
		Handlers: map[string]jobs.Handler{"k": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
			log := jobs.Logger(ctx)
			log.Info(strings.Repeat("\x00", 100_000), "field", 1)
			for i := range calls - 1 {
				log.Info("line", "i", i, "pad", strings.Repeat("<", i%200))
			}
			return 1, nil
		}},
	})
	if err := c.Queue.Submit(t.Context(), jobstest.Job("b", "k")); err != nil {
		t.Fatal(err)
	}
	if r := jobstest.Await(t, c.Results, "b"); r.Status != jobs.Done {
		t.Fatalf("%+v", r)
	}
	until(t, func() bool { lines, dropped := logged(t, c, "b"); return len(lines)+dropped == calls })
	size, lines := 0, 0
	if err := c.Logs.Logs(t.Context(), "b", false, func(l jobs.LogLines) error {
		for _, raw := range l.Lines {
			if lines++; len(raw) > jobs.MaxLogLine {
				t.Errorf("a line of %d bytes", len(raw))
			}
			if cut := strings.HasSuffix(string(raw), `"cut":true}`); cut != (lines == 1) {
				t.Errorf("line %d: %.200s", lines, raw)
			}
			size += len(raw)
		}
		return nil
	}); err != nil || lines == 0 || lines > jobs.MaxLogLines || size > jobs.MaxLogBytes {
		t.Errorf("%d lines of %d bytes, %v", lines, size, err)
	}
	all := value(t, reg, "exoswarm_jobs_log_lines_total")
	dropped := value(t, reg, "exoswarm_jobs_log_lines_dropped_total")
	if all != calls || dropped != float64(calls-lines) {
		t.Errorf("the metrics have %v lines, %v dropped, want %d and %d", all, dropped, calls, calls-lines)
	}
	js := jobstest.Open(t, s, natsconn.Open).JS
	st, err := js.Stream(t.Context(), "EXO_JOBLOGS")
	if err != nil {
		t.Fatal(err)
	}
	m, err := st.GetLastMsgForSubject(t.Context(), "exo.joblog.b")
	if err != nil || m.Header.Get(jetstream.MsgTTLHeader) != "172800s" { // the result's day and another
		t.Errorf("%+v, %v", m, err)
	}
}

// TestLogsAway: a job continues when its log cannot be stored.
func TestLogsAway(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	if err := jobstest.Open(t, s, natsconn.Open).JS.DeleteStream(t.Context(), "EXO_JOBLOGS"); err != nil {
		t.Fatal(err)
	}
	w := work(t, jobstest.Open(t, s, natsq.Connect),
		natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{"k": func(ctx context.Context, _ jobs.Job,
			_ func(any),
		) (any, error) {
			jobs.Logger(ctx).Info("into the void")
			return 1, nil
		}}})
	if err := c.Queue.Submit(t.Context(), jobstest.Job("a", "k")); err != nil {
		t.Fatal(err)
	}
	if r := jobstest.Await(t, c.Results, "a"); r.Status != jobs.Done {
		t.Errorf("%+v", r)
	}
	w.Stop()
}

// TestLogsStrangers: the reader of a log gets a line for each message that is no log line.
func TestLogsStrangers(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	c := jobstest.Open(t, s, natsq.Connect)
	js := jobstest.Open(t, s, natsconn.Open).JS
	const good = `{"v":1,"job":"x","attempt":1,"worker":"python","lines":[{"time":"2026-01-31T12:00:00Z",` +
		`"level":"INFO","msg":"from afar","more":[1]}]}`
	for _, data := range []string{
		"{", strings.Repeat("[", 1000), `{"v":2}`, `{"v":1,"job":"y"}`,
		`{"v":1,"job":"x","lines":[7]}`, `{"v":1,"job":"x","lines":[{"time":"yesterday"}]}`,
		`{"v":1,"job":"x","attempt":-1}`, good,
	} {
		if _, err := js.Publish(t.Context(), "exo.joblog.x", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	got, _ := logged(t, c, "x")
	if len(got) != 8 || got[7] != "1 from afar" || got[6] != "0 message 7 of the log cannot be read: log of job "+
		"\"x\": 0 lines of attempt -1, 0 dropped: use 0 to 1000 lines and no negative numbers" {
		t.Errorf("%q", got)
	}
}
