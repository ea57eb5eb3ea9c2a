package batch

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kind is a batch of agents with what reads it.
type kind struct {
	name   string
	batch  interface{ Encode() ([]byte, error) }
	decode func([]byte) (any, error)
}

func kinds() []kind {
	return []kind{
		{"observations", &AgentObservations{Agent: []uint32{7, 0, 7}, Features: []float32{1, 2, 3, 4, 5, 6}, Width: 2}, func(b []byte) (any, error) { return DecodeAgentObservations(b) }},
		{"decisions", &AgentDecisions{Agent: []uint32{7, 0}, Vote: []uint8{1, NoVote}, Decision: []uint8{NoVote, 15}}, func(b []byte) (any, error) { return DecodeAgentDecisions(b) }},
		{"states", &AgentStates{Agent: []uint32{9}, Vote: []uint8{3}, State: []float32{1, -2, 0.5}, Width: 3}, func(b []byte) (any, error) { return DecodeAgentStates(b) }},
		{"groups", &GroupStates{Group: []uint32{9, 1}, Decision: []uint8{3, NoVote}, Round: []uint64{1, 1 << 40}, Counts: []uint32{1, 2, 3, 4}, Candidates: 2}, func(b []byte) (any, error) { return DecodeGroupStates(b) }},
		{"nodes", &FusedNodes{Node: []uint32{0, 1}, Count: []uint64{3, 1 << 40}, Mean: []float32{1, 2, -3, 0.5}, Width: 2}, func(b []byte) (any, error) { return DecodeFusedNodes(b) }},
	}
}

func TestAgentsRoundTrip(t *testing.T) {
	all := kinds()
	for i, k := range all {
		data, err := k.batch.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := k.decode(data)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(k.batch, got); d != "" {
			t.Error(d)
		}
		if _, err := all[(i+1)%len(all)].decode(data); !isInvalid(err) {
			t.Errorf("%s read as %s: %v", k.name, all[(i+1)%len(all)].name, err)
		}
	}
	for _, ragged := range []interface{ Encode() ([]byte, error) }{
		&AgentObservations{Agent: []uint32{1}, Features: []float32{1}, Width: 2}, &AgentObservations{},
		&AgentDecisions{Agent: []uint32{1}, Vote: []uint8{1}},
		&AgentStates{Agent: []uint32{1}, Vote: []uint8{1}, Width: 1},
		&GroupStates{Group: []uint32{1}, Decision: []uint8{1}, Counts: []uint32{1}, Candidates: 1},
		&FusedNodes{Node: []uint32{1}, Count: []uint64{1}, Mean: []float32{1}, Width: 2}, &FusedNodes{Node: []uint32{1}, Mean: []float32{1}, Width: 1},
	} {
		if _, err := ragged.Encode(); err == nil {
			t.Errorf("encoded %+v", ragged)
		}
	}
}

// FuzzDecodeAgents: whatever arrives, a decoder answers with columns that agree in length or with an invalid-class error.
func FuzzDecodeAgents(f *testing.F) {
	for _, k := range kinds() {
		data, err := k.batch.Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		for i := range data {
			broken := append([]byte{}, data...)
			broken[i] ^= 0x81
			f.Add(broken)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := DecodeAgentObservations(data)
		if err == nil && len(o.Features) != len(o.Agent)*o.Width || err != nil && !isInvalid(err) {
			t.Fatal("observations:", err)
		}
		d, err := DecodeAgentDecisions(data)
		if err == nil && (len(d.Vote) != len(d.Agent) || len(d.Decision) != len(d.Agent)) || err != nil && !isInvalid(err) {
			t.Fatal("decisions:", err)
		}
		s, err := DecodeAgentStates(data)
		if err == nil && (len(s.Vote) != len(s.Agent) || len(s.State) != len(s.Agent)*s.Width) || err != nil && !isInvalid(err) {
			t.Fatal("states:", err)
		}
		g, err := DecodeGroupStates(data)
		if err == nil && (len(g.Decision) != len(g.Group) || len(g.Round) != len(g.Group) || len(g.Counts) != len(g.Group)*g.Candidates) || err != nil && !isInvalid(err) {
			t.Fatal("groups:", err)
		}
		n, err := DecodeFusedNodes(data)
		if err == nil && (len(n.Count) != len(n.Node) || len(n.Mean) != len(n.Node)*n.Width) || err != nil && !isInvalid(err) {
			t.Fatal("nodes:", err)
		}
	})
}
