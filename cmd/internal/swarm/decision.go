// Package swarm has the commands about one swarm or its specification: votes and knowledge,
// compute, export, watch, render, the files of its edges, and exoswarm spec.
package swarm

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// voteVerb is exoswarm swarm vote, for swarms whose agents are addressed. The votes of a swarm
// whose groups are addressed end with each observation, so there is nothing to vote on. It is a
// round of the whole swarm, and no group decides by it.
var voteVerb = cli.Verb{
	Use: "vote NAME", Short: "Let all agents decide together, as they vote now", Lists: true,
	Long: `Let all agents decide together. Each agent votes as it has voted since its last step;
an agent that has never stepped abstains. It changes no agent, unless the specification has rules
(on_decision) for the decision.

The rounds of a swarm count up. A vote is in the next round, or in --round, which must be later than
all rounds before. A round that is over is refused, also after a restart of the GPU agent or the
server. A reset of the swarm does not reset its rounds.

If several candidates have the most votes, the first of them wins, provided that it meets the rule.
The agents that vote for the winner elect one of themselves as their leader. The present leader stays
as long as it votes for the winner. Otherwise the seed of the swarm and the round choose, with the same
chance for each voter. A round that nobody wins has no leader. A term is the time of one leader. Its
number is the round in which the leader was elected. With --priority seeded any agent may lead, as the
seed and the round choose, and with --priority uniform agent 0 leads.

The decision is the outcome of the swarm until the next vote or reset: swarm query --outcome shows it,
and agents whose specification has hear take it as an input of their next steps. What the rules of
on_decision do to it is done when the command ends: the column REACTIONS has it.`,
	Flags: func(f *pflag.FlagSet) {
		f.String("rule", swarms.RulePlurality, "rule for the winner: plurality, majority, quorum or unanimous")
		f.String("quorum", "", "share for the rule quorum, as in 2/3 or 0.6")
		f.String("of", "", "base of majority, quorum and unanimous: cast (the votes cast) or all (all agents) "+
			"(default cast)")
		f.Uint64("round", 0, "number of the round, later than all before; default: the next one")
		f.String(
			"priority",
			swarms.PriorityElected,
			"who leads: elected (a voter for the winner), seeded (any agent) or "+
				"uniform (agent 0)",
		)
		timeoutFlag(f)
	},
	Do: onSwarm(vote),
}

// fuseVerb is exoswarm swarm fuse, for swarms of both kinds.
var fuseVerb = cli.Verb{
	Use:   "fuse NAME --by group|vote|all",
	Short: "Show knowledge nodes: means of the embeddings of agents; it changes nothing", Lists: true,
	Long: `Show knowledge nodes: for each node the number of its agents that have stepped, and
the mean of their embeddings. The embedding is the units of a gru or the potential of a leaky; for
swarms whose groups are addressed, docs/cells.md describes it for each cell. By group, a node has
consecutive groups. By vote, each candidate has a node; this needs a swarm whose agents are
addressed. It changes nothing.`,
	Flags: func(f *pflag.FlagSet) {
		f.String("by", "", "what assigns agents to nodes: group, vote or all (required)")
		f.Int("nodes", 0, "number of nodes by group; 0: one for each group")
		timeoutFlag(f)
	},
	Do: onSwarm(fuse),
}

// vote lets all agents decide together, and prints one item: the round, the winner or none,
// the votes by candidate, the abstentions, whether the rule is met, the leader and its term.
// Shard 0 is asked first, which puts concurrent votes into one order.
func vote(cmd *cobra.Command, s *swarmclient.Swarm) error {
	f := cmd.Flags()
	// The protocol has defaults for empty fields, so they are not repeated here.
	want := swarms.Vote{Version: jobs.Version}
	want.Rule, _ = f.GetString("rule")
	want.Quorum, _ = f.GetString("quorum")
	want.Of, _ = f.GetString("of")
	want.Round, _ = f.GetUint64("round")
	want.Priority, _ = f.GetString("priority")
	// 0 means the next round in the entry, so it cannot be asked for by number.
	if f.Changed("round") && want.Round == 0 {
		return command.Usage("swarm vote: round 0: rounds count from 1: leave --round out for the next one")
	}
	if err := want.Validate(); err != nil {
		return command.Usage("swarm %v", err)
	}
	return showDecision(cmd, s, func() (swarms.Voted, error) { return s.Vote(cmd.Context(), want) })
}

// printOutcome prints the decision of the last round that was concluded, as vote does. Before the
// first round it prints nothing.
func printOutcome(cmd *cobra.Command, s *swarmclient.Swarm) error {
	return showDecision(cmd, s, func() (swarms.Voted, error) { return s.Outcome(cmd.Context()) })
}

// showDecision prints a decision.
//
// Fields: round, winner, votes, abstentions, quorum_met, term, leader with its agent, its priority
// and, if it is elected or agents hear it, its vote, and reactions. leader is null and reactions
// are left out where there are none.
func showDecision(cmd *cobra.Command, s *swarmclient.Swarm, ask func() (swarms.Voted, error)) error {
	v, err := ask()
	if err != nil {
		return err
	}
	columns := []string{"ROUND", "WINNER", "VOTES", "ABSTENTIONS", "LEADER", "PRIORITY", "TERM", "REACTIONS"}
	if v.Round == 0 {
		return cli.PrintRows(cmd, columns)
	}
	// A vote without a winner is an answer and no error; quorum_met tells the reason.
	winner, votes, text := "none", map[string]uint64{}, []string(nil)
	if v.Winner != nil {
		winner = s.Spec().Vote.Candidates[*v.Winner]
	}
	// The table keeps the order of the candidates; the JSON object has the same names.
	for c, n := range v.Counts {
		name := s.Spec().Vote.Candidates[c]
		votes[name] = n
		text = append(text, fmt.Sprintf("%s %d", name, n))
	}
	item := map[string]any{
		"round": v.Round, "winner": winner, "votes": votes, "abstentions": v.Abstentions, "quorum_met": v.QuorumMet,
		"leader": v.Leader, "term": v.Term,
	}
	var did []string
	for _, r := range v.Reactions {
		did = append(did, r.String())
	}
	if len(did) > 0 {
		item["reactions"] = v.Reactions
	}
	leader, priority, term := any("none"), any(""), any("")
	if v.Leader != nil {
		leader, priority, term = v.Leader.Agent, v.Leader.Priority, v.Term
	}
	return cli.PrintOne(cmd, columns, item, v.Round, winner, strings.Join(text, ", "), v.Abstentions, leader, priority,
		term, strings.Join(did, ", "))
}

// listText returns numbers with a space between them.
func listText[T any](all []T) string { return strings.Trim(fmt.Sprint(all), "[]") }

// fuse prints one item for each knowledge node: the number of its agents that have stepped,
// and the mean of their embeddings. By vote a node is a candidate. Shards
// answer with exact sums, so the means do not depend on the number of shards.
//
// Fields: node, agents, mean and, by vote, candidate. The mean of a node without agents is 0.
func fuse(cmd *cobra.Command, s *swarmclient.Swarm) error {
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
	nodes, err := s.Fuse(cmd.Context(), want)
	if err != nil {
		return err
	}
	var rows []cli.Row
	for i, node := range nodes.Node {
		// Nodes come in the order of their numbers, and all have the same width.
		mean, name := nodes.Mean[i*nodes.Width:][:nodes.Width], any(node)
		item := map[string]any{"node": node, "agents": nodes.Count[i], "mean": mean}
		if want.By == swarms.ByVote {
			name = s.Candidate(int(node))
			item["candidate"] = name
		}
		rows = append(rows, cli.NewRow(item, name, nodes.Count[i], listText(mean)))
	}
	return cli.PrintRows(cmd, columns, rows...)
}
