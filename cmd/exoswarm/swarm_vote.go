package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/partition"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func swarmVoteCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "vote NAME", Short: "Have all agents decide together, as they vote now; it changes no agent",
		Args: cobra.ExactArgs(1),
		Long: `Have all agents decide together, as each of them votes since its last step. Those that
have never stepped abstain. It changes no agent.

Rounds of a swarm count up: a vote is in the next round, or in the one of --round, which must be
later than all before. A round that is over is refused, also after a restart of the GPU agent or of
the server. A reset of the swarm does not begin the rounds anew.

Of several candidates with the most votes the first wins, if it has what the rule asks for. The
leader is the agent with the highest priority: agent 0 where all are equal, and with --priority
seeded one that the swarm's seed and the round choose.`,
		RunE: simulating(swarmVote),
	}
	f := c.Flags()
	f.String("rule", swarms.RulePlurality, "what the winner needs: plurality, majority, quorum or unanimous")
	f.String("quorum", "", "the share that the rule quorum asks for, as 2/3 or 0.6")
	f.String("of", "", "what majority, quorum and unanimous are of: cast, the votes cast, or all, all agents "+
		"(default cast)")
	f.Uint64("round", 0, "number of the round, more than that of the last one; the next one when it is not given")
	f.String("priority", swarms.PriorityUniform, "of agents that stand for leader: uniform or seeded")
	return c
}

func swarmFuseCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "fuse NAME --by group|vote|all", Short: "Show what agents know together: the mean of their embeddings; " +
			"it changes nothing", Args: cobra.ExactArgs(1),
		Long: `Show what agents know together, by node: how many of its agents have stepped, and the
mean of their embeddings, the units of a gru or the potential of a leaky, and of a swarm whose
groups are addressed what docs/cells.md says of its cell. By group a node has consecutive groups, by
vote there is one for each candidate, where agents keep votes: not in a swarm whose groups are
addressed. It changes nothing.`,
		RunE: simulating(swarmFuse),
	}
	c.Flags().String("by", "", "which node an agent belongs to: group, vote or all (required)")
	c.Flags().Int("nodes", 0, "nodes by group; 0: one a group")
	return c
}

func swarmVote(cmd *cobra.Command, s *simulation) error {
	f := cmd.Flags()
	want := swarms.Vote{Version: jobs.Version}
	want.Rule, _ = f.GetString("rule")
	want.Quorum, _ = f.GetString("quorum")
	want.Of, _ = f.GetString("of")
	want.Round, _ = f.GetUint64("round")
	want.Priority, _ = f.GetString("priority")
	if f.Changed("round") && want.Round == 0 {
		return command.Usage("swarm vote: round 0: rounds count from 1: leave --round out for the next one")
	}
	if err := want.Validate(); err != nil {
		return command.Usage("swarm %v", err)
	}
	p, err := newPrinter(cmd.OutOrStdout(), f, "ROUND", "WINNER", "VOTES", "ABSTENTIONS", "LEADER", "PRIORITY")
	if err != nil {
		return err
	}
	v, err := s.vote(cmd.Context(), want)
	if err != nil {
		return err
	}
	winner, votes, text := "none", map[string]uint64{}, []string(nil)
	if v.Winner != nil {
		winner = s.spec.Vote.Candidates[*v.Winner]
	}
	for c, n := range v.Counts {
		name := s.spec.Vote.Candidates[c]
		votes[name] = n
		text = append(text, fmt.Sprintf("%s %d", name, n))
	}
	item := map[string]any{
		"round": v.Round, "winner": winner, "votes": votes, "abstentions": v.Abstentions, "quorum_met": v.QuorumMet,
		"leader": v.Leader,
	}
	if err := p.item(item, v.Round, winner, strings.Join(text, ", "), v.Abstentions, v.Leader.Agent,
		v.Leader.Priority); err != nil {
		return err
	}
	return p.end()
}

// vote has all agents decide, in the round of want or, where that is 0, in the next one. Shard 0 is
// asked first: its log puts the rounds of all who vote at once into one order, and what it refuses
// no other shard hears of.
func (s *simulation) vote(ctx context.Context, want swarms.Vote) (v swarms.Voted, err error) {
	deadline, next := time.Now().Add(s.timeout), want.Round == 0
	for {
		all, err := s.voteIn(ctx, deadline, want)
		// a vote has reached some shards alone, or others vote too
		if over := (*jobs.Error)(nil); next && errors.As(err, &over) && over.Code == jobs.CodeRound {
			if want.Round, err = s.laterRound(ctx, deadline, want); err == nil {
				continue
			}
		}
		if err != nil {
			return v, err
		}
		want.Round = all[0].Round
		v, err = partition.Voted(s.record, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), want, all)
		return v, s.wrong(err)
	}
}

// voteIn asks shard 0, and then the others for the round that it has answered with.
func (s *simulation) voteIn(ctx context.Context, deadline time.Time, want swarms.Vote) ([]swarms.Voted, error) {
	entry := func(int) ([]byte, error) { return json.Marshal(want) }
	all, err := askUntil(ctx, s, deadline, swarms.EntryVote, func(k int) bool { return k == 0 }, entry,
		swarms.EntryVoted, swarms.DecodeVoted)
	if err != nil || len(all) == 1 {
		return all, err
	}
	want.Round = all[0].Round
	others, err := askUntil(ctx, s, deadline, swarms.EntryVote, func(k int) bool { return k > 0 }, entry,
		swarms.EntryVoted, swarms.DecodeVoted)
	others[0] = all[0]
	return others, err
}

// laterRound returns a round that is later than the last one of every shard: each has had a vote in
// its own next round.
func (s *simulation) laterRound(ctx context.Context, deadline time.Time, want swarms.Vote) (uint64, error) {
	want.Round = 0
	entry := func(int) ([]byte, error) { return json.Marshal(want) }
	all, err := askUntil(ctx, s, deadline, swarms.EntryVote, nil, entry, swarms.EntryVoted, swarms.DecodeVoted)
	last := uint64(0)
	for _, v := range all {
		last = max(last, v.Round)
	}
	return last + 1, err
}

// fuse asks what all agents know together. Of several shards the sums are merged; one has the means
// itself.
func (s *simulation) fuse(ctx context.Context, want swarms.Fuse) (*batch.FusedNodes, error) {
	if s.record.ShardCount() == 1 {
		all, err := askAll(ctx, s, swarms.EntryFuse, want, swarms.EntryFused, batch.DecodeFusedNodes)
		return all[0], err
	}
	want.Sums = true
	all, err := askAll(ctx, s, swarms.EntryFuse, want, swarms.EntryFused, batch.DecodeFusedSums)
	if err != nil {
		return nil, err
	}
	nodes, err := partition.Fused(s.record, s.spec.AgentsPerGroup, len(s.spec.Vote.Candidates), want, all)
	return nodes, s.wrong(err)
}

func swarmFuse(cmd *cobra.Command, s *simulation) error {
	want := swarms.Fuse{Version: jobs.Version}
	want.By, _ = cmd.Flags().GetString("by")
	want.Nodes, _ = cmd.Flags().GetInt("nodes")
	if err := want.Validate(); err != nil {
		return command.Usage("swarm %v", err)
	}
	columns := []string{"NODE", "AGENTS", "MEAN"}
	if want.By == swarms.ByVote {
		columns[0] = "CANDIDATE"
	}
	p, err := newPrinter(cmd.OutOrStdout(), cmd.Flags(), columns...)
	if err != nil {
		return err
	}
	nodes, err := s.fuse(cmd.Context(), want)
	if err != nil {
		return err
	}
	for i, node := range nodes.Node {
		mean, name := nodes.Mean[i*nodes.Width:][:nodes.Width], any(node)
		item := map[string]any{"node": node, "agents": nodes.Count[i], "mean": mean}
		if want.By == swarms.ByVote {
			name = s.candidate(uint8(node))
			item["candidate"] = name
		}
		if err := p.item(item, name, nodes.Count[i], strings.Trim(fmt.Sprint(mean), "[]")); err != nil {
			return err
		}
	}
	return p.end()
}
