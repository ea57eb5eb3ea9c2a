package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

func queueCommand() *cobra.Command {
	stats := &cobra.Command{
		Use: "stats", Short: "Show how many jobs wait and run, by kind, lane and tenant",
		Args: cobra.NoArgs, RunE: connected(queueStats),
	}
	natsFlag(stats.Flags())
	listing.Flag(stats.Flags())
	change := func(use, short string, pause bool) *cobra.Command {
		cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
		cmd.RunE = connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
			pool, err := poolOf(args[0])
			if err != nil {
				return err
			}
			kind, _ := cmd.Flags().GetString("kind")
			if pause {
				return c.Control.Pause(cmd.Context(), pool, kind)
			}
			return c.Control.Resume(cmd.Context(), pool, kind)
		})
		natsFlag(cmd.Flags())
		cmd.Flags().String("kind", "", "this kind only")
		return cmd
	}
	return command.Group("queue", "Look at the queues, pause and resume them", stats,
		change("pause POOL", "Have workers take no new jobs; what runs goes on", true),
		change("resume POOL", "End a pause", false))
}

func queueStats(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "POOL", "KIND", "LANE", "TENANT", "WAITING", "RUNNING",
		"RETRIED", "PAUSED", "AGENTS")
	if err != nil {
		return err
	}
	for _, pool := range []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} {
		st, err := c.Queue.Stats(cmd.Context(), pool)
		if err != nil {
			return err
		}
		if !p.IsTable() {
			if err := p.Item(st); err != nil {
				return err
			}
			continue
		}
		if err := p.Item(nil, pool, "", "", "", st.Jobs, "", "", st.Paused, ""); err != nil {
			return err
		}
		for _, s := range st.Sources {
			agents := fmt.Sprint(s.Agents)
			if s.Agents == 0 {
				agents = "no agent of kind " + s.Kind
			}
			if err := p.Item(nil, pool, s.Kind, s.Lane, s.Tenant, s.Waiting, s.Running, s.Retried, s.Paused ||
				st.Paused, agents); err != nil {
				return err
			}
		}
	}
	return p.End()
}

func agentCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the agents that are alive, and GPU agents that were lost", Args: cobra.NoArgs,
		Long: `List the agents that are alive. A GPU agent that ended without giving back what it
held is lost: it is listed with its shards until others hold them, and for ten minutes at most.
While an agent replays shards that it has taken over, its state says how far that is.`,
	}
	list.RunE = connected(func(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
		census, err := c.Swarms.Census(cmd.Context())
		if err != nil {
			return err
		}
		p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "AGENT", "POOL", "KINDS", "DEVICE", "RUNNING", "STATE",
			"UP")
		if err != nil {
			return err
		}
		for _, a := range census.Agents {
			up := ""
			if a.Lost == nil {
				up = a.Seen.Sub(a.Started).Round(time.Second).String()
			}
			running := fmt.Sprint(a.Running)
			if a.Concurrency > 0 {
				running += fmt.Sprintf("/%d", a.Concurrency)
			}
			if err := p.Item(a, a.Name, a.Pool, strings.Join(a.Kinds, ","), a.Device, running, agentState(a),
				up); err != nil {
				return err
			}
		}
		return p.End()
	})
	natsFlag(list.Flags())
	listing.Flag(list.Flags())
	drain := &cobra.Command{
		Use: "drain AGENT", Short: "Have an agent take nothing new, give back what it has, and end",
		Args: cobra.ExactArgs(1),
		RunE: connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
			return c.Registry.DrainAgent(cmd.Context(), args[0])
		}),
	}
	natsFlag(drain.Flags())
	return command.Group("agent", "Look at the agents of the cluster", list, drain, rebalanceCommand())
}

func initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create or update the streams of a NATS server, after showing what would change",
		Long: `Compare the streams of a NATS server with what this version wants and show the
differences. With --yes they are applied. What could lose data is never applied: the command says
which setting it is and how to change it by hand.`,
		Args: cobra.NoArgs,
		RunE: initServer,
	}
	natsFlag(cmd.Flags())
	listing.Flag(cmd.Flags())
	cmd.Flags().Int("replicas", 1, "replicas of every stream: 3 in a NATS cluster")
	cmd.Flags().Bool("yes", false, "apply the changes")
	return cmd
}

func initServer(cmd *cobra.Command, _ []string) error {
	f := cmd.Flags()
	o, err := natsOptions(cmd, nil)
	if err != nil {
		return err
	}
	replicas, _ := f.GetInt("replicas")
	yes, _ := f.GetBool("yes")
	if replicas < 1 || replicas > 5 {
		return command.Usage("--replicas %d: use 1 to 5", replicas)
	}
	o.Replicas, o.Bare = replicas, true
	c, err := natsq.Connect(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer c.Close()
	return within(cmd, c, func() error { return prepare(cmd, c, yes) })
}

// prepare shows what the server lacks, and with yes makes it.
func prepare(cmd *cobra.Command, c *natsq.Conn, yes bool) error {
	f := cmd.Flags()
	plan, err := c.Plan(cmd.Context())
	if err != nil {
		return err
	}
	p, err := listing.New(cmd.OutOrStdout(), f, "STREAM", "SETTING", "HAVE", "WANT", "CAN LOSE DATA")
	if err != nil {
		return err
	}
	for _, ch := range plan {
		if err := p.Item(ch, ch.Stream, ch.Field, ch.Have, ch.Want, ch.Drops); err != nil {
			return err
		}
	}
	if err := p.End(); err != nil {
		return err
	}
	switch {
	case len(plan) == 0:
		cmd.PrintErrln("nothing to change")
		return nil
	case !yes:
		cmd.PrintErrln("nothing was changed: apply it with --yes")
		return nil
	}
	if _, err := c.Apply(cmd.Context()); err != nil {
		return err
	}
	cmd.PrintErrf("%d changes applied\n", len(plan))
	return nil
}
