package swarm

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// knowing returns a specification of 100 groups whose agents hear a node, with a section knowledge.
func knowing(knowledge string) string {
	return "name: x\naddressed: agent\nagents: 1000\nagents_per_group: 10\nfeatures: [a]\nhear: [knowledge]\n" +
		"vote: {candidates: [a, b, c]}\nknowledge:\n  " + knowledge + "\n"
}

// TestKnowledge: what a specification says of knowledge nodes has its defaults, and becomes what
// the cell is told.
func TestKnowledge(t *testing.T) {
	for text, want := range map[string]struct {
		nodes, shared, merge, by int
		focus                    float64
	}{
		"units: 2":                            {100, 0, kernels.AgentMergeMean, kernels.AgentByGroup, 0},
		"by: group":                           {100, 0, kernels.AgentMergeMean, kernels.AgentByGroup, 0},
		"nodes: 7":                            {7, 7, kernels.AgentMergeMean, kernels.AgentByGroup, 0},
		"merge: attention":                    {100, 0, kernels.AgentMergeAttention, kernels.AgentByGroup, 1},
		"by: vote":                            {3, 3, kernels.AgentMergeMean, kernels.AgentByVote, 0},
		"{by: key, nodes: 10, merge: max}":    {10, 10, kernels.AgentMergeMax, kernels.AgentByKey, 0},
		"{by: vote, merge: ema}":              {3, 3, kernels.AgentMergeEMA, kernels.AgentByVote, 0},
		"{merge: attention, focus: 0.25}":     {100, 0, kernels.AgentMergeAttention, kernels.AgentByGroup, 0.25},
		"{by: key, nodes: 1, merge: mean}":    {1, 1, kernels.AgentMergeMean, kernels.AgentByKey, 0},
		"{by: vote, merge: attention}":        {3, 3, kernels.AgentMergeAttention, kernels.AgentByVote, 1},
		"{by: key, nodes: 100, merge: max}":   {100, 100, kernels.AgentMergeMax, kernels.AgentByKey, 0},
		"{by: group, nodes: 100, merge: max}": {100, 100, kernels.AgentMergeMax, kernels.AgentByGroup, 0},
	} {
		s, err := Parse("a.yaml", []byte(knowing(text)))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		cell, err := s.Address()
		if err != nil {
			t.Errorf("%s: Address: %v", text, err)
			continue
		}
		merge, _ := cell.Merges()
		if s.KnowledgeNodes() != want.nodes || s.SharedNodes() != want.shared || cell.SharedNodes() != want.shared ||
			merge != want.merge || cell.NodesBy() != want.by || s.Knowledge.Focus != want.focus {
			t.Errorf("%s: %+v, %d nodes, %d shared, merge %d by %d, want %+v", text, s.Knowledge, s.KnowledgeNodes(),
				cell.SharedNodes(), merge, cell.NodesBy(), want)
		}
	}
}

// TestKnowledgeRefused: an error names the line, and what to write.
func TestKnowledgeRefused(t *testing.T) {
	for text, want := range map[string]string{
		"by: votes":                              `by "votes": did you mean "vote"?`,
		"merge: attentoin":                       `merge "attentoin": did you mean "attention"?`,
		"focus: 2":                               "focus 2: use one above 0 and at most 16 with merge: attention",
		"{merge: attention, focus: 17}":          "focus 17: use one above 0",
		"{merge: attention, focus: -1}":          "focus -1: use one above 0",
		"{merge: attention, focus: .nan}":        "focus NaN: use one above 0",
		"{merge: attention, rate: 0.5}":          "rate 0.5: use one above 0 and at most 1 with merge: ema",
		"{by: vote, nodes: 3}":                   "nodes 3: by: vote each candidate has a node: leave it out",
		"by: key":                                "by key: agent i has node i modulo the number of nodes: write nodes",
		"{by: key, nodes: 101}":                  "nodes 101: the groups of a shard keep copies of nodes, and a",
		"{by: key, nodes: -1}":                   "nodes -1: the swarm has 100 groups: use 1 to 100",
		"by: vote\nshards: 2":                    "",
		"by: vote\nshards: 40":                   "by vote: the 3 candidates have a node each, and the groups",
		"{by: key, nodes: 33}\nshards: 3":        "",
		"{by: key, nodes: 34}\nshards: 3":        "nodes 34: the groups of a shard keep copies of nodes, and a",
		"by: vote\ncheckpoint: {entries: 3}\n":   "",
		"{units: 5, by: vote, merge: attention}": "",
	} {
		_, err := Parse("a.yaml", []byte(knowing(text)))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if want = "a.yaml:9: knowledge: " + want; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	few := strings.Replace(knowing("by: vote"), "agents_per_group: 10", "agents_per_group: 500", 1)
	want := "a.yaml:9: knowledge: by vote: the 3 candidates have a node each, and the groups of a shard " +
		"keep copies of all nodes, but a shard has 2 groups: use at least 3 groups"
	if _, err := Parse("a.yaml", []byte(few)); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("few groups: error %v, want %q", err, want)
	}
}
