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
		{
			"observations with items", &AgentObservations{
				Agent: []uint32{7, 0}, Features: []float32{1, 2}, Width: 1, Item: []int32{-1, 1 << 30},
			}, func(b []byte) (any, error) { return DecodeAgentObservations(b) },
		},
		{
			"decisions with scores", &AgentDecisions{
				Agent: []uint32{7, 0}, Vote: []uint8{1, NoVote}, Decision: []uint8{NoVote, 15},
				Score: []float32{0.25, 1},
			}, func(b []byte) (any, error) { return DecodeAgentDecisions(b) },
		},
		{
			"observations", &AgentObservations{
				Agent: []uint32{7, 0, 7}, Features: []float32{1, 2, 3, 4, 5, 6},
				Width: 2,
			},
			func(b []byte) (any, error) { return DecodeAgentObservations(b) },
		},
		{
			"decisions", &AgentDecisions{
				Agent: []uint32{7, 0}, Vote: []uint8{1, NoVote},
				Decision: []uint8{NoVote, 15},
			},
			func(b []byte) (any, error) { return DecodeAgentDecisions(b) },
		},
		{
			"states", &AgentStates{Agent: []uint32{9}, Vote: []uint8{3}, State: []float32{1, -2, 0.5}, Width: 3},
			func(b []byte) (any, error) { return DecodeAgentStates(b) },
		},
		{"groups", &GroupStates{
			Group: []uint32{9, 1}, Decision: []uint8{3, NoVote}, Round: []uint64{1, 1 << 40},
			Counts: []uint32{1, 2, 3, 4}, Candidates: 2,
		}, func(b []byte) (any, error) { return DecodeGroupStates(b) }},
		{"nodes", &FusedNodes{
			Node: []uint32{0, 1}, Count: []uint64{3, 1 << 40}, Mean: []float32{1, 2, -3, 0.5},
			Width: 2,
		}, func(b []byte) (any, error) { return DecodeFusedNodes(b) }},
		{"known nodes", &KnownNodes{
			Node: []uint32{5, 1}, Updates: []uint64{3, 1 << 40}, Age: []uint64{0, NeverUpdated},
			Units: []float32{1, 2, -3, 0.5}, Width: 2,
		}, func(b []byte) (any, error) { return DecodeKnownNodes(b) }},
		{"variables of agents", &AgentVariables{
			Agent: []uint32{9, 1}, Embedding: []float32{1, -2}, Width: 1,
			Vars: []Variable{
				{"agent", 2, []float32{1, 2, -3, 0.5}},
				{"bits", 1, []uint32{3, 1 << 31}},
				{"seen", 1, []uint64{1 << 40, 2}},
				{"latest", 1, []int64{-1, 1 << 40}},
				{"kind", 3, []uint8{1, 2, 3, 4, 5, 255}},
			},
		}, func(b []byte) (any, error) { return DecodeAgentVariables(b) }},
		{
			"variables of agents without an embedding",
			&AgentVariables{Agent: []uint32{9}, Vars: []Variable{{"kind", 1, []uint8{1}}}},
			func(b []byte) (any, error) { return DecodeAgentVariables(b) },
		},
		{
			"variables of groups", &GroupVariables{
				Group: []uint32{9, 1},
				Vars:  []Variable{{"round", 1, []uint64{1, 1 << 40}}, {"level", 2, []float32{1, 2, 3, 4}}},
			},
			func(b []byte) (any, error) { return DecodeGroupVariables(b) },
		},
		{
			"sums", &FusedSums{
				Node: []uint32{3, 7}, Count: []uint64{3, 1 << 40}, Sum: []float32{1, 2, -3, 0.5},
				Width: 2,
			},
			func(b []byte) (any, error) { return DecodeFusedSums(b) },
		},
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
		other := all[(i+3)%len(all)] // kinds that are read alike are at most two places apart
		if _, err := other.decode(data); !isInvalid(err) {
			t.Errorf("%s read as %s: %v", k.name, other.name, err)
		}
	}
	for _, ragged := range []interface{ Encode() ([]byte, error) }{
		&AgentObservations{Agent: []uint32{1}, Features: []float32{1}, Width: 2}, &AgentObservations{},
		&AgentDecisions{Agent: []uint32{1}, Vote: []uint8{1}},
		&AgentObservations{Agent: []uint32{1}, Features: []float32{1}, Width: 1, Item: []int32{1, 2}},
		&AgentDecisions{Agent: []uint32{1}, Vote: []uint8{1}, Decision: []uint8{1}, Score: []float32{}},
		&AgentStates{Agent: []uint32{1}, Vote: []uint8{1}, Width: 1},
		&GroupStates{Group: []uint32{1}, Decision: []uint8{1}, Counts: []uint32{1}, Candidates: 1},
		&FusedNodes{Node: []uint32{1}, Count: []uint64{1}, Mean: []float32{1}, Width: 2},
		&FusedNodes{Node: []uint32{1}, Mean: []float32{1}, Width: 1},
		&KnownNodes{Node: []uint32{1}, Updates: []uint64{1}, Units: []float32{1}, Width: 1}, &KnownNodes{},
		&AgentVariables{Agent: []uint32{1}, Width: 1},
		&AgentVariables{Agent: []uint32{1}, Vars: []Variable{{"x", 2, []uint8{1}}}},
		&GroupVariables{Group: []uint32{1}, Vars: []Variable{{"x", 1, []int{1}}}},
		&GroupVariables{Group: []uint32{}, Vars: []Variable{{"x", 0, []uint8{}}}},
		&FusedSums{Node: []uint32{1}, Count: []uint64{1}, Sum: []float32{1}, Width: 2},
	} {
		if _, err := ragged.Encode(); err == nil {
			t.Errorf("encoded %+v", ragged)
		}
	}
}

// FuzzDecodeAgents: whatever arrives, a decoder answers with columns that agree in length or with
// an invalid-class error.
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
		if err == nil && (len(o.Features) != len(o.Agent)*o.Width || o.Item != nil && len(o.Item) != len(o.Agent)) ||
			err != nil && !isInvalid(err) {
			t.Fatal("observations:", err)
		}
		d, err := DecodeAgentDecisions(data)
		if err == nil && (len(d.Vote) != len(d.Agent) || len(d.Decision) != len(d.Agent) ||
			d.Score != nil && len(d.Score) != len(d.Agent)) || err != nil && !isInvalid(err) {
			t.Fatal("decisions:", err)
		}
		s, err := DecodeAgentStates(data)
		if err == nil && (len(s.Vote) != len(s.Agent) || len(s.State) != len(s.Agent)*s.Width) || err != nil &&
			!isInvalid(err) {
			t.Fatal("states:", err)
		}
		g, err := DecodeGroupStates(data)
		if err == nil && (len(g.Decision) != len(g.Group) || len(g.Round) != len(g.Group) ||
			len(g.Counts) != len(g.Group)*g.Candidates) || err != nil && !isInvalid(err) {
			t.Fatal("groups:", err)
		}
		n, err := DecodeFusedNodes(data)
		if err == nil && (len(n.Count) != len(n.Node) || len(n.Mean) != len(n.Node)*n.Width) || err != nil &&
			!isInvalid(err) {
			t.Fatal("nodes:", err)
		}
		k, err := DecodeKnownNodes(data)
		if err == nil && (len(k.Updates) != len(k.Node) || len(k.Age) != len(k.Node) ||
			len(k.Units) != len(k.Node)*k.Width) || err != nil && !isInvalid(err) {
			t.Fatal("known nodes:", err)
		}
		v, err := DecodeAgentVariables(data)
		if err == nil && (len(v.Embedding) != len(v.Agent)*v.Width || !fits(v.Vars, len(v.Agent))) || err != nil &&
			!isInvalid(err) {
			t.Fatal("variables of agents:", err)
		}
		w, err := DecodeGroupVariables(data)
		if err == nil && !fits(w.Vars, len(w.Group)) || err != nil && !isInvalid(err) {
			t.Fatal("variables of groups:", err)
		}
		sums, err := DecodeFusedSums(data)
		if err == nil && (len(sums.Count) != len(sums.Node) || len(sums.Sum) != len(sums.Node)*sums.Width) ||
			err != nil && !isInvalid(err) {
			t.Fatal("sums:", err)
		}
	})
}

// fits reports whether all variables have the given number of rows.
func fits(vars []Variable, rows int) bool {
	for _, v := range vars {
		n := -1
		switch values := v.Values.(type) {
		case []float32:
			n = len(values)
		case []uint32:
			n = len(values)
		case []uint64:
			n = len(values)
		case []int64:
			n = len(values)
		case []uint8:
			n = len(values)
		}
		if n != rows*v.Width {
			return false
		}
	}
	return true
}
