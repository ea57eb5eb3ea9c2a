package shard

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// scripted is a State whose answers a test sets; everything else comes from a real state.
type scripted struct {
	state.State
	fail   error    // of every entry
	refuse []uint64 // entries that it refuses
	seen   []uint64
	cut    []bool // what reduce was called with
	during func() // is called by apply; nil: nothing is
}

// apply implements state.State.
func (s *scripted) Apply(_ context.Context, e swarms.Entry) (state.Answer, error) {
	if s.during != nil {
		s.during()
	}
	if s.fail != nil {
		return state.Answer{}, s.fail
	}
	if slices.Contains(s.refuse, e.Seq) {
		return state.Answer{}, jobs.Errorf(jobs.CodeInvalid, "refused %d", e.Seq)
	}
	s.seen = append(s.seen, e.Seq)
	return state.Answer{Kind: swarms.EntryTicked, Data: fmt.Append(nil, e.Seq), Observations: 1}, nil
}

// reduce implements state.State.
func (s *scripted) Reduce(on bool) { s.cut = append(s.cut, on) }

// scriptedMerge returns a number of answers.
type scriptedMerge struct {
	of  *scripted
	all []state.Answer
}

func (m *scriptedMerge) Add(state.Observations) {}

// observe implements state.Batch.
func (m *scriptedMerge) Observe(context.Context) ([]state.Answer, error) { return m.all, m.of.fail }

// testLoop is a loop over logs in memory, with what it counts and traces.
type testLoop struct {
	*loop
	p        *scripted
	place    *fixed
	out      *ledger
	registry *prometheus.Registry
	spans    *tracetest.SpanRecorder
	log      strings.Builder
}

// newTestLoop opens a loop of a shard that reads a log and has answers to entries up to answered.
func newTestLoop(t *testing.T, d device.Device, in *ledger, answered uint64, keep *checkpoint) *testLoop {
	t.Helper()
	s := &testLoop{out: &ledger{}, registry: prometheus.NewRegistry(), spans: tracetest.NewSpanRecorder()}
	s.p = &scripted{State: agentsOf(t, d)}
	metrics, err := NewMetrics(s.registry)
	testkit.NoError(t, "NewMetrics", err)
	a := &Server{o: Options{
		Metrics: metrics, BatchLatency: time.Second, Keeps: func(int64) bool { return true },
		Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(s.spans)).Tracer("test"),
	}}
	for n := range answered {
		s.out.all = append(s.out.all, swarms.Entry{Seq: n + 1, Ref: n + 1})
	}
	r, err := in.Read(t.Context(), 1)
	testkit.NoError(t, "in.Read", err)
	log := slog.New(slog.NewTextHandler(&s.log, nil))
	s.place = slotOn(d)
	w := &writer{out: s.out, last: answered, answered: answered}
	s.loop = a.openLoop(t.Context(), ID{}, s.place, w, r, s.p, nil, nil, keep, log)
	s.open = &OpenShard{park: make(chan struct{}, 1)}
	return s
}

// gauge is the sum of a metric over its labels.
func (s *testLoop) gauge(t *testing.T, name string) (sum float64) {
	t.Helper()
	all, err := s.registry.Gather()
	testkit.NoError(t, "registry.Gather", err)
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// batchOf is entries as the pipeline hands them on; some were refused when they were decoded.
func batchOf(p *scripted, from, n uint64, refused ...uint64) *entryBatch {
	s, m := &entryBatch{}, &scriptedMerge{of: p}
	for seq := from; seq < from+n; seq++ {
		i := logEntry{Entry: swarms.Entry{
			Seq: seq, Kind: swarms.EntryObserve,
			Trace: jobs.Trace{Parent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
		}, weight: 10}
		if slices.Contains(refused, seq) {
			i.refused = jobs.Errorf(jobs.CodeInvalid, "bad %d", seq)
		} else {
			m.all = append(m.all, state.Answer{Kind: swarms.EntryDecide, Data: fmt.Append(nil, seq), Observations: 2})
		}
		s.entries = append(s.entries, i)
	}
	s.merged = m
	return s
}
