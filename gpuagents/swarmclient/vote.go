package swarmclient

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Vote lets all agents of a swarm whose agents are addressed decide together, by their votes of
// their last steps. The decision is the outcome of the swarm, which agents may hear. The voters for
// the winner elect their leader, unless want has another priority. The round of want must be later
// than all earlier rounds; 0 takes the next one. A round that is over is refused with
// jobs.CodeRound.
//
// Shard 0 is asked first: its log orders the rounds of concurrent callers, and the other shards do
// not hear of a vote that shard 0 refuses.
func (s *Swarm) Vote(ctx context.Context, want swarms.Vote) (v swarms.Voted, err error) {
	want.Version, want.Priority = jobs.Version, cmp.Or(want.Priority, swarms.PriorityElected)
	deadline, next := time.Now().Add(s.timeout), want.Round == 0
	for {
		all, err := s.voteIn(ctx, deadline, want)
		// An earlier vote has reached some shards alone, or other callers vote too.
		if over := (*jobs.Error)(nil); next && errors.As(err, &over) && over.Code == jobs.CodeRound {
			if want.Round, err = s.laterRound(ctx, deadline, want); err == nil {
				continue
			}
		}
		if err != nil {
			return v, err
		}
		if len(all) == 1 { // the shard has decided and concluded the round
			return all[0], s.badAnswer(s.checkOne(all[0]))
		}
		want.Round = all[0].Round
		v, err = MergeVotes(s.record, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), want, all)
		if err != nil {
			return v, s.badAnswer(err)
		}
		return s.conclude(ctx, deadline, v)
	}
}

// checkOne returns an error unless the answer is a decision of the only shard.
func (s *Swarm) checkOne(v swarms.Voted) error {
	v.Reactions = nil
	if err := v.Check(s.spec.Agents, len(s.spec.Vote.Candidates)); err != nil {
		return fmt.Errorf("%w: %w", errAnswer, err)
	}
	return nil
}

// conclude makes the decision of all shards the outcome of each shard, and returns it with its
// term. A decision that a later round has overtaken is no outcome and has no term.
func (s *Swarm) conclude(ctx context.Context, deadline time.Time, v swarms.Voted) (swarms.Voted, error) {
	all, err := askUntil(ctx, s, deadline, swarms.EntryConclude, nil,
		func(int) ([]byte, error) { return json.Marshal(v) },
		swarms.EntryConcluded, swarms.DecodeVoted)
	if over := (*jobs.Error)(nil); errors.As(err, &over) && over.Code == jobs.CodeRound {
		return v, nil
	}
	for _, of := range all {
		v.Term = max(v.Term, of.Term)
	}
	return v, err
}

// Outcome returns the decision of the last round that was concluded; its round is 0 before the
// first. It changes nothing. Of several shards it is the latest.
func (s *Swarm) Outcome(ctx context.Context) (v swarms.Voted, err error) {
	all, err := askAll(ctx, s, swarms.EntryQuery, swarms.Query{Version: jobs.Version, Outcome: true},
		swarms.EntryOutcome, swarms.DecodeVoted)
	if err != nil {
		return v, err
	}
	v = all[0]
	for _, of := range all {
		if of.Round > v.Round || of.Round == v.Round && of.Term > v.Term {
			v = of
		}
	}
	return v, nil
}

// voteIn asks shard 0, and then the other shards for the round of its answer.
func (s *Swarm) voteIn(ctx context.Context, deadline time.Time, want swarms.Vote) ([]swarms.Voted, error) {
	entry := func(int) ([]byte, error) { return json.Marshal(want) }
	all, err := askUntil(ctx, s, deadline, swarms.EntryVote, func(k int) bool { return k == 0 }, entry,
		swarms.EntryVoted,
		swarms.DecodeVoted)
	if err != nil || len(all) == 1 {
		return all, err
	}
	want.Round = all[0].Round
	others, err := askUntil(ctx, s, deadline, swarms.EntryVote, func(k int) bool { return k > 0 }, entry,
		swarms.EntryVoted,
		swarms.DecodeVoted)
	others[0] = all[0]
	return others, err
}

// laterRound returns a round that is later than the last round of every shard, after a vote of each
// shard in its own next round.
func (s *Swarm) laterRound(ctx context.Context, deadline time.Time, want swarms.Vote) (uint64, error) {
	want.Round = 0
	all, err := askUntil(ctx, s, deadline, swarms.EntryVote, nil,
		func(int) ([]byte, error) { return json.Marshal(want) },
		swarms.EntryVoted, swarms.DecodeVoted)
	last := uint64(0)
	for _, v := range all {
		last = max(last, v.Round)
	}
	return last + 1, err
}

// Fuse returns the knowledge nodes of the swarm: for each node the number of its agents that have
// stepped, and the mean of their embeddings. It changes nothing.
func (s *Swarm) Fuse(ctx context.Context, want swarms.Fuse) (*batch.FusedNodes, error) {
	want.Version = jobs.Version
	if s.record.ShardCount() == 1 {
		all, err := askAll(ctx, s, swarms.EntryFuse, want, swarms.EntryFused, batch.DecodeFusedNodes)
		return all[0], err
	}
	want.Sums = true // means of shards cannot be merged exactly, sums can
	all, err := askAll(ctx, s, swarms.EntryFuse, want, swarms.EntryFused, batch.DecodeFusedSums)
	if err != nil {
		return nil, err
	}
	nodes, err := MergeFused(s.record, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), want, all)
	return nodes, s.badAnswer(err)
}
