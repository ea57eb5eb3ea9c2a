package swarmclient

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/exoswarm/exoswarm/gpuagents/partition"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Knowledge returns knowledge nodes by their numbers, in the order of ids, of a swarm whose agents hear
// them. Without a number of nodes in the specification, the number of a node is that of its group. It
// takes up to swarms.MaxAddressed ids, and changes nothing.
func (s *Swarm) Knowledge(ctx context.Context, ids []uint32) (*batch.KnownNodes, error) {
	split, err := partition.Nodes(s.record, s.spec.SharedNodes(), s.spec.MergesNodes(), ids)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "query: %v", err)
	}
	all, err := ask(ctx, s, swarms.EntryQuery, split.Has, func(k int) ([]byte, error) {
		return json.Marshal(swarms.Query{Version: jobs.Version, Groups: split.IDs(k), Knowledge: true})
	}, swarms.EntryKnown, batch.DecodeKnownNodes)
	if err != nil {
		return nil, err
	}
	nodes, err := split.KnownNodes(all)
	return nodes, s.badAnswer(err)
}

// Learn merges values into knowledge nodes; see swarms.Learn. A long list takes several entries, of which
// entries is the number that took effect; each is sent when the one before it is answered. A list with a
// node or a value that the swarm does not take changes nothing.
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
	if _, err := partition.Nodes(s.record, s.spec.SharedNodes(), s.spec.MergesNodes(), l.Nodes); err != nil {
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

// learn appends one entry to the log of each shard that has a node.
func (s *Swarm) learn(ctx context.Context, l swarms.Learn) error {
	split, err := partition.Nodes(s.record, s.spec.SharedNodes(), s.spec.MergesNodes(), l.Nodes)
	if err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "learn: %v", err)
	}
	_, err = ask(ctx, s, swarms.EntryLearn, split.Has,
		func(k int) ([]byte, error) { return json.Marshal(split.Lessons(l, k)) }, swarms.EntryLearned,
		swarms.DecodeLearned)
	return err
}

// mergedTick makes one step of a swarm whose knowledge nodes have agents of several shards: each shard makes
// the nodes of the sums of all agents in the step. own are those of the shards; nil asks for them. It returns
// those behind the step. Of two that run at the same time, one may have agents hear the nodes of the step
// before.
func (s *Swarm) mergedTick(ctx context.Context, own [][]byte) (all []swarms.Ticked, next [][]byte, err error) {
	if own == nil {
		if own, err = s.sums(ctx); err != nil {
			return nil, nil, err
		}
	}
	sums, err := partition.Sums(s.spec.KnowledgeNodes(), s.spec.Knowledge.Units, s.spec.Knowledge.Merge, own)
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

// sums asks the shards for the sums of their agents.
func (s *Swarm) sums(ctx context.Context) (own [][]byte, err error) {
	all, err := askAll(ctx, s, swarms.EntryQuery, swarms.Query{Version: jobs.Version, Sums: true}, swarms.EntrySums,
		swarms.DecodeNodeSums)
	for _, of := range all {
		own = append(own, of.Words)
	}
	return own, err
}
