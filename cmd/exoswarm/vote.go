package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs"
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
		RunE: onSwarm(swarmVote),
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
		RunE: onSwarm(swarmFuse),
	}
	c.Flags().String("by", "", "which node an agent belongs to: group, vote or all (required)")
	c.Flags().Int("nodes", 0, "nodes by group; 0: one a group")
	return c
}

func swarmVote(cmd *cobra.Command, s *swarmclient.Swarm) error {
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
	p, err := listing.New(cmd.OutOrStdout(), f, "ROUND", "WINNER", "VOTES", "ABSTENTIONS", "LEADER", "PRIORITY")
	if err != nil {
		return err
	}
	v, err := s.Vote(cmd.Context(), want)
	if err != nil {
		return err
	}
	winner, votes, text := "none", map[string]uint64{}, []string(nil)
	if v.Winner != nil {
		winner = s.Spec().Vote.Candidates[*v.Winner]
	}
	for c, n := range v.Counts {
		name := s.Spec().Vote.Candidates[c]
		votes[name] = n
		text = append(text, fmt.Sprintf("%s %d", name, n))
	}
	item := map[string]any{
		"round": v.Round, "winner": winner, "votes": votes, "abstentions": v.Abstentions, "quorum_met": v.QuorumMet,
		"leader": v.Leader,
	}
	if err := p.Item(item, v.Round, winner, strings.Join(text, ", "), v.Abstentions, v.Leader.Agent,
		v.Leader.Priority); err != nil {
		return err
	}
	return p.End()
}

func swarmFuse(cmd *cobra.Command, s *swarmclient.Swarm) error {
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
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), columns...)
	if err != nil {
		return err
	}
	nodes, err := s.Fuse(cmd.Context(), want)
	if err != nil {
		return err
	}
	for i, node := range nodes.Node {
		mean, name := nodes.Mean[i*nodes.Width:][:nodes.Width], any(node)
		item := map[string]any{"node": node, "agents": nodes.Count[i], "mean": mean}
		if want.By == swarms.ByVote {
			name = s.Candidate(int(node))
			item["candidate"] = name
		}
		if err := p.Item(item, name, nodes.Count[i], strings.Trim(fmt.Sprint(mean), "[]")); err != nil {
			return err
		}
	}
	return p.End()
}
