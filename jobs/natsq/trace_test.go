package natsq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.opentelemetry.io/otel/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/otlptest"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/gateway"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

// tracing has spans exported to a collector, without delay.
func tracingTo(t *testing.T) (*otlptest.Collector, trace.TracerProvider) {
	t.Helper()
	c := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	p, err := command.NewTracing(t.Context(), "test", t.Name(), jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return c, p.Provider()
}

func traced(t *testing.T, s *server.Server, p trace.TracerProvider) *natsq.Conn {
	t.Helper()
	c, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: s, Name: t.Name(), Tracing: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// until waits for a condition.
func until(t *testing.T, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for !ok() {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("not within two minutes")
		}
	}
}

func none(context.Context, jobs.Job, func(any)) (any, error) { return 1, nil }

// TestTrace: submitter, worker and waiter have different connections, and their spans are one
// trace.
func TestTrace(t *testing.T) {
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	spans, p := tracingTo(t)
	seen := make(chan trace.SpanContext, 1)
	work(t, traced(t, s, p), natsq.WorkerOptions{
		Name: "w",
		Handlers: map[string]jobs.Handler{"k": func(ctx context.Context, _ jobs.Job, _ func(any)) (any, error) {
			seen <- trace.SpanContextFromContext(ctx)
			return 1, nil
		}},
	})
	j := jobstest.Job("t1", "k")
	if err := traced(t, s, p).Queue.Submit(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	jobstest.Await(t, traced(t, s, p).Results, "t1")
	submit := spans.Wait(t, "submit EXO_JOBS_CPU", 1)[0]
	process := spans.Wait(t, "process EXO_JOBS_CPU", 1)[0]
	publish := spans.Wait(t, "publish EXO_RESULTS", 1)[0]
	receive := spans.Wait(t, "receive EXO_RESULTS", 1)[0]
	for i, c := range []struct {
		got    otlptest.Span
		parent string
		kind   tracepb.Span_SpanKind
	}{
		{submit, "", tracepb.Span_SPAN_KIND_PRODUCER},
		{process, submit.ID, tracepb.Span_SPAN_KIND_CONSUMER},
		{publish, process.ID, tracepb.Span_SPAN_KIND_PRODUCER},
		{receive, publish.ID, tracepb.Span_SPAN_KIND_CLIENT},
	} {
		if c.got.Trace != submit.Trace || c.got.Parent != c.parent || c.got.Kind != c.kind || c.got.Failed ||
			c.got.Text["messaging.system"] != "nats" {
			t.Errorf("span %d: %+v", i, c.got)
		}
	}
	if process.Text["messaging.message.id"] != "t1" || process.Text["exoswarm.job.kind"] != "k" ||
		process.Text["exoswarm.job.outcome"] != "done" ||
		process.Number["exoswarm.job.attempt"] != 1 || process.Service != "test" || len(receive.Links) != 1 ||
		receive.Links[0] != publish.ID {
		t.Errorf("%+v\n%+v", process, receive)
	}
	if h := <-seen; h.SpanID().String() != process.ID {
		t.Errorf("the handler's span is %s, want %s", h.SpanID(), process.ID)
	}
}

// TestTraceParts: the trace of a job passes through the places where it waits, even if the process
// that moves it traces nothing.
func TestTraceParts(t *testing.T) {
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	spans, p := tracingTo(t)
	// A worker of another pool moves delayed and waiting jobs too.
	conn := jobstest.Open(t, s, natsq.Connect)
	mover, err := conn.Work(t.Context(), natsq.WorkerOptions{Name: "mover", Pool: jobs.PoolGPU})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(mover.Stop)
	c := traced(t, s, p)
	delayed, parent, child := jobstest.Job("delayed", "k"), jobstest.Job("parent", "k"), jobstest.Job("child", "k")
	delayed.NotBefore = time.Now().Add(time.Second)
	child.After = []string{"parent"}
	ctx := tracing.With(t.Context(), jobs.Trace{
		Parent: "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01",
		State:  "vendor=x",
	})
	if err := c.Queue.Submit(ctx, delayed); err != nil {
		t.Fatal(err)
	}
	if err := c.Queue.SubmitBatch(ctx, []jobs.Job{parent, child}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { // both that wait for nothing are in their queue
		st, err := c.Queue.Stats(t.Context(), jobs.PoolCPU)
		if err != nil {
			t.Fatal(err)
		}
		return st.Jobs == 2
	})
	work(t, traced(t, s, p), natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{"k": none}})
	for _, id := range []string{"delayed", "parent", "child"} {
		jobstest.Await(t, jobstest.Open(t, s, natsq.Connect).Results, id)
	}
	for _, got := range spans.Wait(t, "process EXO_JOBS_CPU", 3) {
		if got.Trace != "0123456789abcdef0123456789abcdef" || got.State != "vendor=x" {
			t.Errorf("%+v", got)
		}
	}
}

// TestTraceBatch: each job of a batch has its attempt in the trace of its submission, and a link to
// the run of the batch.
func TestTraceBatch(t *testing.T) {
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	spans, p := tracingTo(t)
	work(t, traced(t, s, p), natsq.WorkerOptions{
		Name: "w",
		Batches: map[string]natsq.Batch{"k": {
			Max: 10,
			Handle: func(_ context.Context, batch []jobs.Job, _ func(int, any)) ([]jobs.Outcome, error) {
				return make([]jobs.Outcome, len(batch)), nil
			},
		}},
	})
	c := traced(t, s, p)
	var batch []jobs.Job
	for i := range 10 {
		batch = append(batch, jobstest.Job(fmt.Sprint("b", i), "k"))
	}
	if err := c.Queue.SubmitBatch(t.Context(), batch); err != nil {
		t.Fatal(err)
	}
	for _, j := range batch {
		jobstest.Await(t, c.Results, j.ID)
	}
	submit := spans.Wait(t, "submit EXO_JOBS_CPU", 1)[0]
	if submit.Number["messaging.batch.message_count"] != 10 {
		t.Errorf("%+v", submit)
	}
	runs, linked := map[string]int64{}, 0
	var attempts []otlptest.Span
	want := 10 // and one or more runs of batches
	for len(attempts) < 10 || linked < 10 {
		attempts, linked = nil, 0
		for _, got := range spans.Wait(t, "process EXO_JOBS_CPU", want) {
			if n := got.Number["messaging.batch.message_count"]; n > 0 {
				runs[got.ID] = n
				linked += len(got.Links)
				continue
			}
			attempts = append(attempts, got)
		}
		want++
	}
	seen := map[string]bool{}
	for _, got := range attempts {
		seen[got.Text["messaging.message.id"]] = true
		if got.Trace != submit.Trace || got.Parent != submit.ID || len(got.Links) != 1 || runs[got.Links[0]] == 0 {
			t.Errorf("%+v", got)
		}
	}
	if len(seen) != 10 {
		t.Errorf("attempts at %v", seen)
	}
}

// TestTraceAttempts: every attempt is a span of the one trace and says what became of it.
func TestTraceAttempts(t *testing.T) {
	s := jobstest.Start(t, server.Options{Port: server.InProcess})
	spans, p := tracingTo(t)
	work(t, traced(t, s, p), natsq.WorkerOptions{
		Name: "w",
		Handlers: map[string]jobs.Handler{"k": func(_ context.Context, j jobs.Job, _ func(any)) (any, error) {
			if j.LastAttempt {
				return nil, jobs.Errorf(jobs.CodeIO, "the disk is gone")
			}
			return nil, jobs.Retry(errors.New("not yet"))
		}},
	})
	c := traced(t, s, p)
	j := jobstest.Job("r1", "k")
	j.MaxAttempts = 2
	if err := c.Queue.Submit(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	jobstest.Await(t, c.Results, "r1")
	submit := spans.Wait(t, "submit EXO_JOBS_CPU", 1)[0]
	both := map[int64]otlptest.Span{}
	for _, got := range spans.Wait(t, "process EXO_JOBS_CPU", 2) {
		both[got.Number["exoswarm.job.attempt"]] = got
		if got.Parent != submit.ID || !got.Failed {
			t.Errorf("%+v", got)
		}
	}
	if both[1].Text["exoswarm.job.outcome"] != "retried" || both[2].Text["exoswarm.job.outcome"] != "failed" ||
		both[2].Text["error.type"] != "io" {
		t.Errorf("%+v", both)
	}
}

// TestTraceStrangers: a client of any language takes part by its headers, and headers that make no
// sense change nothing.
func TestTraceStrangers(t *testing.T) {
	s := jobstest.Start(t, server.Options{})
	spans, p := tracingTo(t)
	c := traced(t, s, p)
	work(t, c, natsq.WorkerOptions{Name: "w", Handlers: map[string]jobs.Handler{"k": none}})
	nc := jobstest.Raw(t, natsconn.Options{InProcess: s}).NC
	const good = "00-0123456789abcdef0123456789abcdef-0123456789abcdef-01"
	for i, h := range []nats.Header{
		{"traceparent": {good}, "tracestate": {"vendor=x"}},
		{"traceparent": {good}, "tracestate": {strings.Repeat("x", 60_000)}},
		{"traceparent": {"00-00000000000000000000000000000000-0123456789abcdef-01"}},
		{"traceparent": {"ff-0123456789abcdef0123456789abcdef-0123456789abcdef-01"}},
		{"traceparent": {strings.Repeat("0", 60_000)}},
		{"traceparent": {good[:54] + "\u00e9"}},
		{"traceparent": {}, "tracestate": {"vendor=x"}},
	} {
		j := jobstest.Job(fmt.Sprint("s", i), "k")
		data, err := json.Marshal(j)
		if err != nil {
			t.Fatal(err)
		}
		ack, err := nc.RequestMsgWithContext(t.Context(),
			&nats.Msg{Subject: "exo.job.cpu.k.normal.default." + j.ID, Data: data, Header: h})
		if err != nil || strings.Contains(string(ack.Data), "error") { // the server takes headers of up to 64 KiB
			t.Fatal(err, string(ack.Data))
		}
		if r := jobstest.Await(t, jobstest.Open(t, s, natsq.Connect).Results, j.ID); r.Status != jobs.Done {
			t.Errorf("%d: %+v", i, r)
		}
	}
	g, err := gateway.Serve(c.Conn, c.Queue, c.Swarms, jobstest.Quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	req := &nats.Msg{
		Subject: "exo.api.submit", Data: []byte(`{"pool":"cpu","kind":"k","id":"asked","spec":1}`),
		Header: nats.Header{"traceparent": {good}},
	}
	if m, err := nc.RequestMsgWithContext(t.Context(), req); err != nil || string(m.Data) != `{"v":1,"job":"asked"}` {
		t.Fatalf("%v, %v", m, err)
	}
	jobstest.Await(t, jobstest.Open(t, s, natsq.Connect).Results, "asked")
	asked := spans.Wait(t, "submit EXO_JOBS_CPU", 1)[0]
	if asked.Parent != "0123456789abcdef" {
		t.Errorf("%+v", asked)
	}
	for _, got := range spans.Wait(t, "process EXO_JOBS_CPU", 8) {
		if got.Parent == asked.ID {
			continue
		}
		id := got.Text["messaging.message.id"]
		inside := got.Trace == "0123456789abcdef0123456789abcdef" && got.Parent == "0123456789abcdef"
		if inside != (id == "s0" || id == "s1") || (got.State == "vendor=x") != (id == "s0") {
			t.Errorf("%+v", got)
		}
	}
}
