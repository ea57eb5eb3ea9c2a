package swarmclient

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Knowledge returns knowledge nodes by their numbers, in the order of ids, of a swarm whose agents
// hear them. Without a number of nodes in the specification, nodes are numbered as groups. It takes
// up to swarms.MaxAddressed ids, and changes nothing.
func (s *Swarm) Knowledge(ctx context.Context, ids []uint32) (*batch.KnownNodes, error) {
	p, err := s.splitNodes(ids)
	return askSplit(ctx, s, p, err, "query", swarms.EntryQuery, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Groups: p.IDs(k), Knowledge: true})
	}, swarms.EntryKnown, batch.DecodeKnownNodes, (*Split).KnownNodes)
}

func (s *Swarm) splitNodes(ids []uint32) (*Split, error) {
	return SplitNodes(s.record, s.spec.SharedNodes(), s.spec.MergesNodes(), ids)
}

// Learn merges values into knowledge nodes; see swarms.Learn. A long list is split into several log
// entries, each sent when the previous one is answered; entries is the number of entries that took
// effect. A list with a node or a value that the swarm refuses changes nothing.
func (s *Swarm) Learn(ctx context.Context, l swarms.Learn) (entries int, err error) {
	l.Version = jobs.Version
	units := s.spec.Knowledge.Units
	switch err := l.Check(); {
	case units == 0:
		return 0, jobs.Errorf(jobs.CodeInvalid, "learn: swarm %s has no knowledge nodes: write hear: [knowledge] in "+
			"its specification", s.record.ID)
	case len(l.Values) != len(l.Nodes)*units:
		return 0, jobs.Errorf(jobs.CodeInvalid, "learn: %d values for %d nodes: a node of swarm %s has %d units: use "+
			"%d values for each", len(l.Values), len(l.Nodes), s.record.ID, units, units)
	case err != nil:
		return 0, err
	}
	if _, err := s.splitNodes(l.Nodes); err != nil {
		return 0, jobs.Errorf(jobs.CodeInvalid, "learn: %v", err)
	}
	for first := 0; first < len(l.Nodes); first += swarms.MaxLearned {
		part, end := l, min(first+swarms.MaxLearned, len(l.Nodes))
		part.Nodes, part.Values = l.Nodes[first:end], l.Values[first*units:end*units]
		if err := s.learn(ctx, part); err != nil {
			if first > 0 {
				err = fmt.Errorf("nodes from number %d on (those before took effect): %w", first+1, err)
			}
			return entries, err
		}
		entries++
	}
	return entries, nil
}

func (s *Swarm) learn(ctx context.Context, l swarms.Learn) error {
	p, err := s.splitNodes(l.Nodes)
	_, err = askSplit(ctx, s, p, err, "learn", swarms.EntryLearn, func(k int) ([]byte, error) {
		return json.Marshal(p.Lessons(l, k))
	}, swarms.EntryLearned, swarms.DecodeLearned, func(*Split, []swarms.Learned) (struct{}, error) {
		return struct{}{}, nil
	})
	return err
}

// mergedTick makes one step of a swarm whose knowledge nodes have agents of several shards: each
// shard computes the nodes from the sums of all agents. own are the sums of the shards before the
// step; nil: they are asked for. next are the sums after the step. If two calls run at the same
// time, agents may hear the nodes of the previous step.
func (s *Swarm) mergedTick(ctx context.Context, own [][]byte) (all []swarms.Ticked, next [][]byte, err error) {
	if own == nil {
		if own, err = s.sums(ctx); err != nil {
			return nil, nil, err
		}
	}
	sums, err := MergeSums(s.spec.KnowledgeNodes(), s.spec.Knowledge.Units, s.spec.Knowledge.Merge, own)
	if err != nil {
		return nil, nil, s.badAnswer(err)
	}
	all, err = askAll(ctx, s, swarms.EntryTick, swarms.Tick{Version: jobs.Version, Count: 1, Sums: sums},
		swarms.EntryTicked, swarms.DecodeTicked)
	for _, of := range all {
		next = append(next, of.Sums)
	}
	return all, next, err
}

func (s *Swarm) sums(ctx context.Context) (own [][]byte, err error) {
	all, err := askAll(ctx, s, swarms.EntryQuery, swarms.Query{Version: jobs.Version, Sums: true}, swarms.EntrySums,
		swarms.DecodeNodeSums)
	for _, of := range all {
		own = append(own, of.Words)
	}
	return own, err
}
