package shard

import (
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestEncode: each answer is encoded at its index, and answers before one that cannot be encoded
// are kept.
func TestEncode(t *testing.T) {
	var of []pendingAnswer
	for i := range 300 {
		of = append(of, pendingAnswer{
			ref: uint64(i + 1),
			answer: state.Answer{Kind: swarms.EntryDecide, Body: &batch.AgentDecisions{
				Agent: []uint32{uint32(i)}, Vote: []byte{1}, Decision: []byte{2},
			}},
		})
	}
	of[7].answer = state.Answer{Kind: swarms.EntryTicked, Data: []byte("ticked")}
	check := func(n int) {
		t.Helper()
		all, err := (&appender{}).encode(of)
		if len(all) != n || (err == nil) != (n == len(of)) {
			t.Fatalf("%d answers: %v", len(all), err)
		}
		for i, e := range all {
			if e.Ref != uint64(i+1) {
				t.Fatalf("answer %d is to entry %d", i, e.Ref)
			}
			if i == 7 {
				continue
			}
			if d, err := batch.DecodeAgentDecisions(e.Data); err != nil || d.Agent[0] != uint32(i) ||
				e.Kind != swarms.EntryDecide {
				t.Fatalf("answer %d is of agent %v: %v", i, d.Agent, err)
			}
		}
	}
	check(300)
	of[200].answer.Body = &batch.Decisions{Candidates: 0}
	of[250].answer.Body = of[200].answer.Body
	check(200)
	if all, err := (&appender{}).encode(nil); len(all) != 0 || err != nil {
		t.Fatalf("no answers become %v, %v, want nothing", all, err)
	}
}
