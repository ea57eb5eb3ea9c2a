package state

import (
	"context"
	"encoding/json"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// noKnowledge refuses an entry for nodes that there are none of.
func noKnowledge(what string) error {
	return jobs.Errorf(
		jobs.CodeInvalid, "%s: this swarm has no knowledge nodes: write hear: [knowledge] in its specification", what,
	)
}

// knowledge answers knowledge nodes, in the order of the question. It reads pages where they are.
func (s *agentState) knowledge(ctx context.Context, nodes []uint32) (Answer, error) {
	width := s.agents.Cell().Nodes()
	if width == 0 {
		return Answer{}, noKnowledge("query")
	}
	if most := swarms.MaxState / (4 + 8 + 8 + 4*width); len(nodes) > most {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "query: %d nodes: ask for at most %d of this swarm at a time", len(nodes), most,
		)
	}
	if _, err := s.nodes.owns(nodes, 1, "node"); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: node %v", err)
	}
	k, err := s.agents.Knowledge(ctx, s.merge.local(s.nodes.local(nil, nodes, 1)))
	if err != nil {
		return Answer{}, err
	}
	data, err := (&batch.KnownNodes{
		Node: nodes, Updates: k.Updates, Age: k.Ages, Units: k.Units, Width: width,
	}).Encode()
	return Answer{Kind: swarms.EntryKnown, Data: data}, err
}

func (s *agentState) learn(ctx context.Context, data []byte) (Answer, error) {
	l, err := swarms.DecodeLearn(data)
	if err != nil {
		return Answer{}, err
	}
	width := s.agents.Cell().Nodes()
	if width == 0 {
		return Answer{}, noKnowledge("learn")
	}
	if len(l.Values) != len(l.Nodes)*width {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "learn: %d values for %d nodes: a node of this swarm has %d units: use %d values for "+
				"each", len(l.Values), len(l.Nodes), width, width,
		)
	}
	if bad, err := s.nodes.owns(l.Nodes, 1, "node"); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "learn: row %d: node %v", bad+1, err)
	}
	if err := s.agents.Learn(ctx, s.merge.local(s.nodes.local(nil, l.Nodes, 1)), l.Values, l.Replace); err != nil {
		return Answer{}, err
	}
	data, err = json.Marshal(swarms.Learned{Version: jobs.Version, Nodes: len(l.Nodes)})
	return Answer{Kind: swarms.EntryLearned, Data: data}, err
}
