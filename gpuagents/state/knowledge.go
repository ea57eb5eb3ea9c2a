package state

import (
	"context"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// errNoKnowledge refuses a question for nodes that there are none of.
var errNoKnowledge = jobs.Errorf(
	jobs.CodeInvalid, "query: this swarm has no knowledge nodes: write hear: [knowledge] in its specification",
)

// knowledge answers the knowledge nodes of groups, in the order of the question. It reads pages where
// they are.
func (s *agentState) knowledge(ctx context.Context, groups []uint32) (Answer, error) {
	width := s.agents.Cell().Nodes()
	if width == 0 {
		return Answer{}, errNoKnowledge
	}
	if most := swarms.MaxState / (4 + 8 + 4*width); len(groups) > most {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "query: %d nodes: ask for at most %d of this swarm at a time", len(groups), most,
		)
	}
	if _, err := s.groups.owns(groups, 1, "group"); err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "query: group %v", err)
	}
	nodes, updates, err := s.agents.Knowledge(ctx, s.groups.local(nil, groups, 1))
	if err != nil {
		return Answer{}, err
	}
	data, err := (&batch.FusedNodes{Node: groups, Count: updates, Mean: nodes, Width: width}).Encode()
	return Answer{Kind: swarms.EntryFused, Data: data}, err
}
