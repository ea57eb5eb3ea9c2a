package shard

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// series returns the values of a family by its labels, joined with blanks.
func series(t *testing.T, r *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all, err := r.Gather()
	testkit.NoError(t, "r.Gather", err)
	values := map[string]float64{}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				key += " " + l.GetValue()
			}
			values[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return values
}

// TestVotes: the votes and the decisions of answers are counted by candidate when the answers are
// encoded, dropped observations are not counted, and the number of series is bounded.
func TestVotes(t *testing.T) {
	r := prometheus.NewRegistry()
	m, err := NewMetrics(r)
	testkit.NoError(t, "NewMetrics", err)
	a := &appender{count: m.voting("gru", []string{"x", "y"})}
	if got := series(t, r, "exoswarm_swarm_votes_total"); len(got) != 2 || got[" x gru"] != 0 {
		t.Errorf("before the first answer: %v, want both candidates at 0", got)
	}
	if _, err := a.encode([]pendingAnswer{
		{answer: state.Answer{Body: &batch.Decisions{
			Group: []uint32{1, 2, 3}, Row: make([]uint64, 3), Read: make([]int64, 3), Timestamp: make([]string, 3),
			Value: make([]float64, 3), Score: make([]float32, 3), Leader: make([]uint64, 3), Round: make([]uint64, 3),
			Decision: []uint32{1, batch.NoDecision, batch.NoDecision}, Candidates: 2,
			Counts: []uint32{3, 7, 5, 5, 0, 0}, Dropped: []uint8{0, 0, batch.DroppedLate},
		}}},
		{answer: state.Answer{Body: &batch.AgentDecisions{
			Agent: []uint32{1, 2, 3}, Vote: []byte{0, 0, 255}, Decision: []byte{0, 1, 255},
		}}},
		{answer: state.Answer{Ticked: &swarms.Ticked{
			Tally: []uint64{100, 200}, Decided: []uint64{10, 20}, Undecided: 30,
		}}},
		{answer: state.Answer{Kind: swarms.EntryEnd}},
	}); err != nil {
		t.Fatalf("encode: %v, want no error", err)
	}
	for name, want := range map[string]map[string]float64{
		"exoswarm_swarm_votes_total":     {" x gru": 3 + 5 + 2 + 100, " y gru": 7 + 5 + 200},
		"exoswarm_swarm_decisions_total": {" x gru": 1 + 10, " y gru": 1 + 1 + 20},
		"exoswarm_swarm_undecided_total": {" gru": 1 + 1 + 30},
	} {
		// Labels are in the order of their names: candidate, cell.
		if got := series(t, r, name); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for i := range 2 * maxCandidates {
		m.voting("gru", []string{fmt.Sprint("c", i)})(state.Answer{Ticked: &swarms.Ticked{Tally: []uint64{1}}})
	}
	got := series(t, r, "exoswarm_swarm_votes_total")
	if len(got) != maxCandidates+1 || got[" other gru"] != 2*maxCandidates-(maxCandidates-2) {
		t.Errorf("of many names: %v", got)
	}
}

// TestLagSeconds: the age of the oldest entry grows while a shard works on it, and is 0 when all
// are applied. The cell keeps its series.
func TestLagSeconds(t *testing.T) {
	stored := time.Now().Add(-time.Minute)
	in := ticks(3)
	in.waits = true
	for i := range in.all {
		in.all[i].Time = stored.Add(time.Duration(i) * 10 * time.Second)
	}
	keep := newShelf(t, newDisk())
	s := newTestLoop(t, launches.Host(t), in, 0, keep.checkpoint)
	testkit.NoError(t, "Open", s.p.Memory().Open(t.Context(), keep.store))
	const name = "exoswarm_swarm_lag_seconds"
	var during []float64
	s.p.during = func() { during = append(during, s.gauge(t, name)) }
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.serve(ctx) }()
	testkit.Until(t, "every entry has its answer", func() bool { return len(s.out.entries()) == 3 })
	testkit.Until(t, "no entry waits", func() bool { return s.gauge(t, name) == 0 })
	if len(during) != 3 || !slices.IsSortedFunc(during, func(a, b float64) int { return int(b - a) }) ||
		during[0] < 60 || during[0] > 70 || during[2] < 40 || during[2] > 50 {
		t.Errorf("ages of the entries that were applied: %v, want some 60, 50 and 40 s", during)
	}
	s.waits.set(stored)
	if got := s.gauge(t, name); got < 60 {
		t.Errorf("an entry of a minute ago: %v s", got)
	}
	s.unfollow()
	if got := series(t, s.registry, name); len(got) != 1 || s.gauge(t, name) != 0 {
		t.Errorf("after the end: %v", got)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the context", err)
	}
	if err := s.close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
