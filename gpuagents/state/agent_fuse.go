package state

import (
	"context"

	"github.com/exoswarm/exoswarm/consensus/fusion"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// fuse answers a fusion of all agents of the shard: the nodes that these agents may be in, with
// their sums if the client merges several shards. It does not change the state. Mistakes of the
// client are a *jobs.Error, which becomes the answer.
func (s *agentState) fuse(ctx context.Context, data []byte) (Answer, error) {
	want, err := swarms.DecodeFuse(data)
	if err != nil {
		return Answer{}, err
	}
	a := s.agents
	if a.Cell().Measures() {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "fuse: agents of the cell %s have no embedding: ask swarm "+
			"query for their probabilities", a.Cell().Cell.Name)
	}
	_, width := a.StateVars()
	all, err := a.Nodes(want)
	if err != nil {
		return Answer{}, jobs.Errorf(jobs.CodeInvalid, "fuse: nodes %d: the swarm has %d groups: use at most as many",
			want.Nodes, s.groups.All)
	}
	first, n := a.OwnNodes(want.By, all)
	if err := checkNodes(n, width); err != nil {
		return Answer{}, err
	}
	nodes, halved, err := a.FuseParts(ctx, &gpubatch.Splitter{Reduced: s.splitter.Reduced}, want, agents.FuseWindow)
	if err != nil {
		return Answer{}, err
	}
	return answerFusion(want, first, nodes, halved)
}

// checkNodes refuses a fusion whose answer is larger than a message.
func checkNodes(n, width int) error {
	if most := swarms.MaxState / (4 + 8 + 4*width); n > most {
		return jobs.Errorf(
			jobs.CodeInvalid, "fuse: %d nodes: ask for at most %d of this swarm (swarm fuse --nodes)", n, most,
		)
	}
	return nil
}

// answerFusion answers with the means of nodes, or with their sums if the client merges several
// shards. first is the number of the first node.
func answerFusion(want swarms.Fuse, first int, nodes fusion.Nodes, halved int) (Answer, error) {
	n, width := nodes.Len(), nodes.Dim
	ids := make([]uint32, n)
	for i := range ids {
		ids[i] = uint32(first + i)
	}
	if want.Sums {
		data, err := (&batch.FusedSums{Node: ids, Count: nodes.Counts, Sum: nodes.Sums, Width: width}).Encode()
		return Answer{Kind: swarms.EntryFused, Data: data, Halved: halved}, err
	}
	out := &batch.FusedNodes{Node: ids, Count: nodes.Counts, Mean: make([]float32, n*width), Width: width}
	if err := nodes.Means(out.Mean); err != nil {
		return Answer{}, err
	}
	data, err := out.Encode()
	return Answer{Kind: swarms.EntryFused, Data: data, Halved: halved}, err
}
