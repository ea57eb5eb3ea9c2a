package state

import (
	"context"
	"encoding/json"
	"errors"
	"slices"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/gpuagents/agents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// leader returns the leader among the agents of the shard, in groups of size, by its id in the
// swarm. Without a seed all priorities are equal, and the first agent leads. The merge of the
// leaders of all shards is the leader of the swarm.
func (h GroupRange) leader(seed, round uint64, size int, seeded bool) consensus.Leader {
	first, n, all := int64(h.First)*int64(size), int64(h.Groups)*int64(size), int64(h.All)*int64(size)
	l := consensus.Leader{Agent: uint64(first), Elected: true}
	if !seeded {
		return l
	}
	if of := agents.Leading(seed, round, all); of >= first &&
		of < first+n { // else priorities fall from the first agent on
		l.Agent = uint64(of)
	}
	l.Priority = agents.Priority(seed, round, all, uint32(l.Agent))
	return l
}

// vote answers a vote of all agents of the shard. Clients merge the answers of several shards; the
// leader has its id in the swarm for that. The entry has the round, which Snapshotter has numbered.
func (s *agentState) vote(ctx context.Context, data []byte) (Answer, error) {
	v, err := swarms.DecodeVote(data)
	if err != nil {
		return Answer{}, err
	}
	rule, err := swarm.VoteRule(v)
	if err != nil {
		return Answer{}, err
	}
	if s.agents.Cell().Measures() {
		if err := s.measure(ctx, v.Round); err != nil {
			return Answer{}, err
		}
	}
	if v.Priority == swarms.PriorityElected {
		return s.elect(ctx, rule, v.Round)
	}
	ctx = context.WithoutCancel(ctx)
	seeded := v.Priority == swarms.PrioritySeeded
	d, err := s.agents.Vote(ctx, rule, v.Round, seeded)
	if err != nil {
		return Answer{}, err
	}
	if s.groups.Shards > 1 {
		d.Leader = s.groups.leader(s.seed, v.Round, s.agents.Cell().Agents, seeded)
	}
	voted := swarm.NewVoted(d)
	if s.hear.leader() {
		if voted.Leader.Vote, err = s.ballot(ctx, voted.Leader.Agent); err != nil {
			return Answer{}, err
		}
	}
	data, err = json.Marshal(voted)
	return Answer{Kind: swarms.EntryVoted, Data: data, Voted: &voted}, err
}

// measure draws the ballots of a round. The end of ctx interrupts it only between two sets of
// pages.
func (s *agentState) measure(ctx context.Context, round uint64) error {
	if s.memory.Resident() {
		ctx = context.WithoutCancel(ctx)
	}
	return s.agents.Measure(ctx, round)
}

// elect answers a vote whose leader is elected by the voters for the winner. The leader of the
// outcome stays if it is one of them. The end of ctx interrupts it only between two sets of pages.
func (s *agentState) elect(ctx context.Context, rule consensus.Rule, round uint64) (Answer, error) {
	if s.memory.Resident() {
		ctx = context.WithoutCancel(ctx)
	}
	incumbent := consensus.Leader{}
	if last := s.rounds.Outcome(); last != nil && last.Leader != nil {
		incumbent = consensus.Leader{Agent: uint64(last.Leader.Agent), Term: last.Term, Elected: true}
	}
	voted, err := s.elected(ctx, rule, round, incumbent)
	if errors.Is(err, consensus.ErrBid) {
		return Answer{}, jobs.Errorf(
			jobs.CodeInvalid, "vote: %v: groups do not count the votes of their agents: tick the swarm first", err,
		)
	}
	if err != nil {
		return Answer{}, err
	}
	data, err := json.Marshal(voted)
	return Answer{Kind: swarms.EntryVoted, Data: data, Voted: &voted}, err
}

// elected returns the decision of the agents. One of several shards does not know the winner, and
// returns the bids of its agents in place of a leader.
func (s *agentState) elected(
	ctx context.Context, rule consensus.Rule, round uint64, incumbent consensus.Leader,
) (swarms.Voted, error) {
	if s.groups.Shards == 1 {
		d, err := s.agents.Elect(ctx, rule, round, incumbent)
		return swarm.NewElected(d), err
	}
	e, err := s.agents.Bids(ctx, round, incumbent)
	if err != nil {
		return swarms.Voted{}, err
	}
	d, err := e.Decide(rule)
	d.Round, d.Leader = round, consensus.Leader{}
	voted := swarm.NewVoted(d)
	voted.Bids = swarm.NewBids(e)
	return voted, err
}

// ballot returns the candidate that an agent of the shard votes for; nil: it has never stepped.
func (s *agentState) ballot(ctx context.Context, agent uint32) (*int, error) {
	found, err := s.agents.AgentStates(ctx, s.groups.local(nil, []uint32{agent}, s.agents.Cell().Agents))
	if err != nil || found.Vote[0] == batch.NoVote {
		return nil, err
	}
	vote := int(found.Vote[0])
	return &vote, nil
}

func (s *agentState) outcome() (Answer, error) {
	of := s.rounds.Outcome()
	if of == nil {
		of = &swarms.Voted{Version: jobs.Version, Counts: make([]uint64, s.agents.Cell().Candidates)}
	}
	data, err := json.Marshal(of)
	return Answer{Kind: swarms.EntryOutcome, Data: data}, err
}

// hearing is what the agents of a swarm hear: values that they take as inputs of each step, behind
// the features.
type hearing []string

func (h hearing) leader() bool { return slices.Contains(h, swarm.HearLeader) }

// values returns the values that all agents hear after an outcome, in the order of the
// specification, with a 0 for each unit of the node of their group. Candidate c of n is (c+1)/n. 0
// is no outcome, no winner, or a leader that abstains. The values depend on the outcome alone, so
// they have the same bits on all devices and shards.
func (h hearing) values(outcome *swarms.Voted, candidates, node int) []float32 {
	var all []float32
	for _, what := range h {
		choice := (*int)(nil)
		switch {
		case what == swarm.HearKnowledge:
			all = append(all, make([]float32, node-1)...)
		case outcome != nil && what == swarm.HearDecision:
			choice = outcome.Winner
		case outcome != nil && outcome.Leader != nil && what == swarm.HearLeader:
			choice = outcome.Leader.Vote
		}
		value := float32(0)
		if choice != nil {
			value = float32(*choice+1) / float32(candidates)
		}
		all = append(all, value)
	}
	return all
}

// listen has the agents hear the last outcome from their next step on. It is called before each
// step, and does nothing while the outcome is the same as in the step before. A tick has them hear
// their group.
func (s *agentState) listen(ctx context.Context) error {
	if len(s.hear) == 0 {
		return nil
	}
	cell := s.agents.Cell()
	return s.agents.Hear(ctx, s.hear.values(s.rounds.Outcome(), cell.Candidates, cell.Nodes()))
}
