package main

import (
	"cmp"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// queueCommand returns exoswarm queue. A pause is stored in the cluster and lasts until resume,
// also when all agents restart. Running jobs go on. Jobs can be submitted to a paused pool. A
// worker that asked for jobs before it heard of the pause still takes one.
func queueCommand() *cobra.Command {
	stats := &cobra.Command{
		Use: "stats", Short: "Show how many jobs wait and run, by kind, lane, tenant and level",
		Args: cobra.NoArgs, RunE: connect.Connected(queueStats),
	}
	connect.Flags(stats.Flags())
	command.ListFlag(stats.Flags())
	// change returns pause or resume. An empty kind means the whole pool; the two kinds of pause
	// are independent, so resume of a pool does not end the pause of a kind.
	change := func(use, short string, pause bool) *cobra.Command {
		cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ExactArgs(1)}
		cmd.RunE = connect.Connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
			pool, err := poolOf(args[0])
			if err != nil {
				return err
			}
			kind, _ := cmd.Flags().GetString("kind")
			name := "queue.resume"
			if pause {
				name = "queue.pause"
			}
			_, err = operate(cmd, c, action.Request{Action: name, Object: string(pool), Kind: kind})
			return err
		})
		connect.Flags(cmd.Flags())
		cmd.Flags().String("kind", "", "only this kind")
		return cmd
	}
	return command.Group("queue", "Show, pause and resume the queues", stats,
		change("pause POOL", "Pause a pool: workers take no new jobs, and running jobs continue", true),
		change("resume POOL", "End the pause of a pool", false))
}

// queueStats prints the sources of both pools: for each kind, lane and tenant the jobs that wait
// and run. A table has a row for each source below the sum of its pool; the other formats have
// one item for each pool, a jobs.QueueStats. A source without an agent of its kind says so.
//
// JSON has one object for each pool, with the list of its sources.
func queueStats(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "POOL", "KIND", "LANE", "TENANT", "LEVEL", "WAITING",
		"RUNNING", "RETRIED", "PAUSED", "AGENTS")
	if err != nil {
		return err
	}
	// Both pools exist in every cluster, also if no agent serves one of them.
	for _, pool := range []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} {
		st, err := c.Queue.Stats(cmd.Context(), pool)
		if err != nil {
			return err
		}
		// Programs get the statistics as the queue has them, with the sources inside.
		if !p.IsTable() {
			if err := p.Item(st); err != nil {
				return err
			}
			continue
		}
		if err := p.Item(nil, pool, "", "", "", "", st.Jobs, "", "", st.Paused, ""); err != nil {
			return err
		}
		// Their sources are not known to the workers yet.
		for i, n := range []uint64{st.Delayed, st.Dependent} {
			if n == 0 {
				continue
			}
			what := []string{"(delayed)", "(wait for other jobs)"}[i]
			if err := p.Item(nil, pool, what, "", "", n, "", "", st.Paused, ""); err != nil {
				return err
			}
		}
		for _, s := range st.Sources {
			// Jobs of such a source wait until an agent of the kind connects.
			agents := fmt.Sprint(s.Agents)
			if s.Agents == 0 {
				agents = "no agent of kind " + s.Kind
			}
			if err := p.Item(nil, pool, s.Kind, s.Lane, s.Tenant, cmp.Or(s.Level, "default"), s.Waiting,
				s.Running, s.Retried, s.Paused || st.Paused, agents); err != nil {
				return err
			}
		}
	}
	return p.End()
}

// poolOf returns the pool of a name on the command line, or an error of usage. It accepts no other
// case and no abbreviation.
func poolOf(text string) (jobs.Pool, error) {
	if p := jobs.Pool(text); p == jobs.PoolCPU || p == jobs.PoolGPU {
		return p, nil
	}
	return "", command.Usage("pool %q: use cpu or gpu", text)
}
