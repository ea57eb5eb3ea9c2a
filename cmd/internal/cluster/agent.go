package cluster

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
)

var agentNames = cli.ListNames(
	func(ctx context.Context, c *natsq.Conn) ([]jobs.Agent, error) { return c.Registry.Agents(ctx) },
	func(a jobs.Agent) string { return a.Name },
)

// Agents returns exoswarm agent: the agents of a cluster, their end, and the balance of their
// shards. Its commands read and write the registry and the leases alone, so they work while an
// agent is busy or lost.
func Agents() *cobra.Command {
	const short = "List, drain and balance the agents of the cluster"
	return cli.Noun{Use: "agent", Short: short, Names: agentNames, Verbs: []cli.Verb{
		{
			Use: "list", Short: "List the agents that are alive, and GPU agents that were lost", Lists: true,
			Long: `List the agents that are alive. A GPU agent that ended without giving its shards back
is lost: the list shows it with its shards until other agents hold them, for ten minutes at most.
While an agent replays shards that it has taken over, its state shows the progress.`,
			// The census also has agents that were lost, which the registry has forgotten.
			Do: cli.List(agentTable, func(ctx context.Context, c *natsq.Conn) ([]jobs.Agent, error) {
				census, err := c.Swarms.Census(ctx)
				if err != nil {
					return nil, err
				}
				return census.Agents, nil
			}),
		},
		// The agent answers that it drains; the command does not wait for its end. A lost agent cannot
		// answer; its jobs and shards move to others when its leases end.
		{
			Use: "drain AGENT", Short: "Drain an agent: it takes no more work, gives back what it has, and ends",
			Do: cli.Operates("agent.drain"),
		},
		// An interrupt or --timeout ends the command and not the moves.
		{
			Use: "rebalance", Short: "Even out the shards of the GPU agents, and wait until they have moved",
			Lists: true,
			Long: `Move shards from GPU agents with more shards to agents with fewer, until no agent has
two more than another. The new agent of a shard first replays its log, while the old agent still
serves it. Then the lease moves, and the shard does not answer for a moment. The command prints the
moves, and ends when all are complete. A shard stays where it is when its new agent cannot take it.
Agents do the same by themselves (gpuagent --rebalance), one shard at a time.`,
			Flags: func(f *pflag.FlagSet) {
				f.Bool("dry-run", false, "show what would move, and move nothing")
				f.Duration(
					"timeout",
					10*time.Minute,
					"longest wait; shards that have not moved by then still move later",
				)
			},
			Do: cli.Queue(rebalance),
		},
	}}.Command()
}

var agentTable = cli.Table[jobs.Agent]{
	Columns: []string{"AGENT", "POOL", "KINDS", "DEVICE", "RUNNING", "STATE", "UP"},
	Row: func(a jobs.Agent) []any {
		// A lost agent has no time: it ended at a moment that nobody has seen.
		up := ""
		if a.Lost == nil {
			up = a.Seen.Sub(a.Started).Round(time.Second).String()
		}
		// RUNNING counts jobs of a CPU agent and shards of a GPU agent, which has no Concurrency.
		running := fmt.Sprint(a.Running)
		if a.Concurrency > 0 {
			running += fmt.Sprintf("/%d", a.Concurrency)
		}
		return []any{a.Name, a.Pool, strings.Join(a.Kinds, ","), a.Device, running, stateOf(a), up}
	},
}

// stateOf returns the state of an agent for people: the shards that were lost with it, the
// progress of its replays, and whether it uses the host device in place of a GPU. It names at most
// three lost shards and one replay, to keep a table narrow; -o json has all of them. An agent with
// several devices names them in State itself.
func stateOf(a jobs.Agent) string {
	switch {
	case a.Lost != nil && len(a.Lost.Shards) == 0:
		return fmt.Sprintf("%s since %s, held no shards", a.State, a.Lost.Since.UTC().Format(time.RFC3339))
	case a.Lost != nil:
		const most = 3
		names, more := a.Lost.Shards, ""
		if len(names) > most {
			names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
		}
		return fmt.Sprintf("%s since %s, held %s%s", a.State, a.Lost.Since.UTC().Format(time.RFC3339),
			strings.Join(names, ", "), more)
	}
	state := a.State
	if n := len(a.Recovering); n > 0 {
		state = fmt.Sprintf("%s, %s: %v", state, a.Recovering[0].Shard, a.Recovering[0])
		if n > 1 {
			state += fmt.Sprintf(" and %d more", n-1)
		}
	}
	if a.Fallback != "" {
		state += " on the host: no GPU"
	}
	return state
}

var moveTable = cli.Table[swarmlog.Move]{
	Columns: []string{"SHARD", "FROM", "TO", "STATE"},
	Row:     func(m swarmlog.Move) []any { return []any{m.Shard, m.From, m.To, m.State} },
}

// rebalance plans the moves of shards, offers them to their new agents and, unless --dry-run is
// given, waits until all are over. It prints one item for each move, a swarmlog.Move, in the
// end; while it waits, changes of state go to stderr. It fails when a shard stays where it is,
// or when --timeout has passed: the offers stay open then.
//
// Fields of a move: shard (its lease key), from and to (names of agents), and state: planned,
// offered, followed, moved or refused.
func rebalance(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	timeout, _ := cmd.Flags().GetDuration("timeout")
	if timeout <= 0 {
		return command.Usage("agent rebalance: --timeout %v: use more than 0", timeout)
	}
	ctx := cmd.Context()
	moves, err := c.Swarms.PlanMoves(ctx)
	if err != nil {
		return err
	}
	// OfferMoves marks the leases; each agent then acts by itself, also if this command ends.
	if dry, _ := cmd.Flags().GetBool("dry-run"); !dry && len(moves) > 0 {
		if err := cli.Recorded(cmd, c, "agent.rebalance", fmt.Sprintf("%d shards", len(moves)), func() error {
			return c.Swarms.OfferMoves(ctx, moves)
		}); err != nil {
			return err
		}
		err = followMoves(cmd, c, moves, timeout)
	}
	// The moves are printed after an error too, because offers that were made stay. The list ends
	// before messages for people, so that both are complete on a terminal.
	moved := 0
	for _, m := range moves {
		if m.State == swarmlog.MoveMoved {
			moved++
		}
	}
	if perr := moveTable.Print(cmd, moves...); perr != nil {
		return perr
	}
	if len(moves) == 0 {
		cmd.PrintErrln("nothing to move: no GPU agent holds two shards more than another")
	} else if dry, _ := cmd.Flags().GetBool("dry-run"); !dry && err == nil {
		cmd.PrintErrf("%d of %d shards have moved\n", moved, len(moves))
		if moved < len(moves) {
			return jobs.Errorf(jobs.CodeIO, "%d shards stay where they are: their new agents did not take them, as "+
				"their logs say", len(moves)-moved)
		}
	}
	return err
}

// followMoves waits until all moves are over or timeout has passed, and writes every change of
// state to stderr. An interrupt leaves the offers open. It updates moves in place, also when it
// returns an error, so that the caller can print how far each one came. It asks the cluster five
// times a second. A move is over when it is moved or refused.
func followMoves(cmd *cobra.Command, c *natsq.Conn, moves []swarmlog.Move, timeout time.Duration) error {
	// The timer covers the whole wait, however often the states change.
	look, end := time.NewTicker(200*time.Millisecond), time.NewTimer(timeout)
	defer look.Stop()
	defer end.Stop()
	// told has the states that the user has seen, so each change is one line.
	told := make([]string, len(moves))
	for {
		over, err := c.Swarms.FollowMoves(cmd.Context(), moves)
		if err != nil {
			return err
		}
		for i, m := range moves {
			if m.State != told[i] {
				told[i] = m.State
				cmd.PrintErrf("%s: %s to %s: %s\n", m.Shard, m.From, m.To, m.State)
			}
		}
		if over {
			return nil
		}
		select {
		case <-look.C:
		case <-end.C:
			return jobs.Errorf(jobs.CodeDeadline, "not all shards have moved after %v: the others follow (exoswarm "+
				"swarm list), or wait longer with --timeout", timeout)
		case <-cmd.Context().Done():
			return fmt.Errorf("agent rebalance: %w: offers that are open stand", command.ErrInterrupted)
		}
	}
}
