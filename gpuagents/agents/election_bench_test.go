package agents

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/opentest"
)

// BenchmarkAgentsVote alternates a tick of all agents with votes: one that draws a leader among all
// agents, one whose leader is elected, one whose incumbent stays, the bids for all candidates as
// one of several shards makes them, and an election after a tick. The times are medians until the
// result is in host memory; the last one also as a share of the tick. The bids are compared with a
// loop over the votes of all agents. Run it with -benchtime 60x.
func BenchmarkAgentsVote(b *testing.B) {
	d := openNamed(b, *opentest.Name)
	for _, c := range []struct {
		name, cell           string
		agents               int64
		features, candidates int
	}{
		{"leaky/1M", "leaky", 1_000_000, 2, 2},
		{"gru/h8/f32/1M", "gru", 1_000_000, 6, 5},
		{"gru/h8/f32/10M", "gru", 10_000_000, 6, 5},
		{"gru/h8/f32/100M", "gru", 100_000_000, 6, 5},
		{"gru/h8/f32/100M/16", "gru", 100_000_000, 6, 16},
	} {
		b.Run(c.name, func(b *testing.B) {
			a := makeAgents(b, d, address(b, c.cell, nil, 64, c.features, c.candidates), scaled(d, c.agents), Options{})
			fillPages(b, a)
			ctx, rule, round := b.Context(), consensus.Rule{}, uint64(0)
			tick := func() error {
				_, err := a.Tick(ctx, 1)
				return err
			}
			vote := func(incumbent consensus.Leader) (consensus.Decision, error) {
				round++
				return a.Elect(ctx, rule, round, incumbent)
			}
			elect := func() error {
				_, err := vote(consensus.Leader{})
				return err
			}
			if err := tick(); err != nil {
				b.Fatalf("Tick: %v", err)
			}
			stays, err := vote(consensus.Leader{})
			if err != nil {
				b.Fatalf("Elect: %v", err)
			}
			steps := []struct {
				name string
				run  func() error
			}{
				{"tick-us", tick},
				{"drawn-us", func() error {
					_, err := a.Vote(ctx, rule, round, true)
					return err
				}},
				{"elected-us", elect},
				{"stays-us", func() error {
					stays, err = vote(stays.Leader)
					return err
				}},
				{"bids-us", func() error {
					_, err := a.Bids(ctx, round, stays.Leader)
					return err
				}},
				{"elected-tick-us", func() error {
					if err := elect(); err != nil {
						return err
					}
					return tick()
				}},
			}
			took := make([][]time.Duration, len(steps))
			for i := range b.N + 3 {
				for k, s := range steps {
					began := time.Now()
					if err := s.run(); err != nil {
						b.Fatalf("%s: %v", s.name, err)
					}
					if i >= 3 {
						took[k] = append(took[k], time.Since(began))
					}
				}
			}
			median := func(k int) float64 {
				slices.Sort(took[k])
				return float64(took[k][len(took[k])/2].Nanoseconds()) / 1e3
			}
			for k, s := range steps {
				b.ReportMetric(median(k), s.name)
			}
			b.ReportMetric(median(len(steps)-1)/median(0), "elected-tick/tick")
			b.ReportMetric(0, "ns/op")
			checkElection(b, a, round+1)
		})
	}
}

// checkElection compares an election with a loop over the votes in all pages.
func checkElection(t testing.TB, a *Agents, round uint64) {
	t.Helper()
	got, err := a.Bids(t.Context(), round, consensus.Leader{})
	if err != nil {
		t.Fatalf("Bids: %v", err)
	}
	want, err := consensus.NewElection(a.cell.Candidates)
	if err != nil {
		t.Fatalf("NewElection: %v", err)
	}
	draw, page := consensus.NewDraw(a.seed, round), make([]byte, a.layout.PageBytes)
	for id := range uint32(a.n) {
		in := int(id % a.perPage.by)
		if in == 0 {
			if err := a.memory.Read(t.Context(), uint64(a.perPage.of(id)), page); err != nil {
				t.Fatalf("memory.Read: %v", err)
			}
		}
		want.Tally.Total++
		v := page[int(a.layout.Offsets[kernels.AgentVarVote])+in]
		if v == 0 {
			want.Tally.Abstentions++
			continue
		}
		of := id + uint32(a.firstID())
		want.Tally.Counts[v-1]++
		want.Bid(int(v-1), consensus.Leader{Agent: uint64(of), Priority: draw.Priority(of), Elected: true})
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("elected %v, a loop over all agents %v", got, want)
	}
}
