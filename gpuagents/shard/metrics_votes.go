package shard

import (
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/gpuagents/state"
)

const (
	// maxCandidates bounds the values of the label candidate. The first names keep their own value
	// as long as the process lives; all others share otherCandidates.
	maxCandidates   = 8
	otherCandidates = "other"
)

type voteMetrics struct {
	votes, decisions, undecided, reactions *prometheus.CounterVec

	mu    sync.Mutex
	known []string // candidates with their own label value
}

func newVoteMetrics(r *registrar) *voteMetrics {
	return &voteMetrics{
		votes: r.counter("votes_total", "Votes of agents by candidate; weighted votes count with their weights. A "+
			"replay counts no vote twice. The first eight names of candidates have a value, others share one.",
			"candidate"),
		decisions: r.counter("decisions_total", "Decisions of groups by candidate: one for each observation, and one "+
			"for each group and tick.", "candidate"),
		undecided: r.counter("undecided_total", "Votes of groups that met no rule."),
		reactions: r.counter("reactions_total", "What rules of on_decision have done, by action: tick, reset, emit or "+
			"submit. A replay counts none twice.", "action"),
	}
}

func (m *voteMetrics) label(candidate string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case slices.Contains(m.known, candidate):
	case len(m.known) == maxCandidates:
		return otherCandidates
	default:
		m.known = append(m.known, candidate)
	}
	return candidate
}

// voting returns a function that counts the votes of an answer before it is encoded; nil for a nil
// Metrics. All series of the candidates exist from then on. Several goroutines may call it.
func (m *Metrics) voting(cell string, candidates []string) func(a state.Answer) {
	if m == nil {
		return nil
	}
	votes, decisions := make([]prometheus.Counter, len(candidates)), make([]prometheus.Counter, len(candidates))
	for i, c := range candidates {
		name := m.votes.label(c)
		votes[i] = m.votes.votes.WithLabelValues(cell, name)
		decisions[i] = m.votes.decisions.WithLabelValues(cell, name)
	}
	undecided := m.votes.undecided.WithLabelValues(cell)
	return func(a state.Answer) {
		t := a.Tally(len(candidates))
		for i := range candidates {
			votes[i].Add(float64(t.Votes[i]))
			decisions[i].Add(float64(t.Decided[i]))
		}
		undecided.Add(float64(t.Undecided))
		if a.Voted != nil {
			for _, r := range a.Voted.Reactions {
				m.votes.reactions.WithLabelValues(cell, r.Action).Inc()
			}
		}
	}
}
