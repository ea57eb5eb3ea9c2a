package queue

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Queues returns exoswarm queue. A pause is stored in the cluster and lasts until resume, also when
// all agents restart. Running jobs continue. Jobs can be submitted to a paused pool. A worker that
// asked for jobs before it heard of the pause still takes one.
func Queues() *cobra.Command {
	// An empty kind means the whole pool; the two kinds of pause are independent, so resume of a
	// pool does not end the pause of a kind.
	change := func(use, short, name string) cli.Verb {
		return cli.Verb{
			Use: use, Short: short,
			Flags:  func(f *pflag.FlagSet) { f.String("kind", "", "only this kind") },
			Before: func(_ *cobra.Command, args []string) error { _, err := poolOf(args[0]); return err },
			Do: cli.Queue(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
				kind, _ := cmd.Flags().GetString("kind")
				_, err := cli.Operate(cmd, c, action.Request{Action: name, Object: args[0], Kind: kind})
				return err
			}),
		}
	}
	pools := func(context.Context, *natsq.Conn) []string { return []string{"cpu", "gpu"} }
	return cli.Noun{Use: "queue", Short: "Show, pause and resume the queues", Names: pools, Verbs: []cli.Verb{
		{
			Use: "stats", Short: "Show how many jobs wait and run, by kind, lane, tenant and level", Lists: true,
			Do: cli.Queue(queueStats),
		},
		change("pause POOL", "Pause a pool: workers take no new jobs, and running jobs continue", "queue.pause"),
		change("resume POOL", "End the pause of a pool", "queue.resume"),
	}}.Command()
}

// queueStats prints the sources of both pools: for each kind, lane and tenant the jobs that wait
// and run. A table has a row for each source below the sum of its pool; the other formats have
// one item for each pool, a jobs.QueueStats. A source without an agent of its kind says so.
//
// JSON has one object for each pool, with the list of its sources.
func queueStats(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	var items []jobs.QueueStats
	var rows []cli.Row // for a table
	row := func(cells ...any) { rows = append(rows, cli.NewRow(nil, cells...)) }
	// Both pools exist in every cluster, also if no agent serves one of them.
	for _, pool := range []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} {
		st, err := c.Queue.Stats(cmd.Context(), pool)
		if err != nil {
			return err
		}
		items = append(items, st)
		row(pool, "", "", "", "", st.Jobs, "", "", st.Paused, "")
		// The sources of these jobs are not known to the workers yet.
		for _, waiting := range []struct {
			what string
			n    uint64
		}{{"(delayed)", st.Delayed}, {"(wait for other jobs)", st.Dependent}} {
			if waiting.n > 0 {
				row(pool, waiting.what, "", "", waiting.n, "", "", st.Paused, "")
			}
		}
		for _, s := range st.Sources {
			// Jobs of such a source wait until an agent of the kind connects.
			agents := fmt.Sprint(s.Agents)
			if s.Agents == 0 {
				agents = "no agent of kind " + s.Kind
			}
			row(pool, s.Kind, s.Lane, s.Tenant, cmp.Or(s.Level, "default"), s.Waiting, s.Running, s.Retried,
				s.Paused || st.Paused, agents)
		}
	}
	// Programs get the statistics as the queue has them, with the sources inside.
	if format, _ := cmd.Flags().GetString("output"); format != "table" {
		return cli.Table[jobs.QueueStats]{Row: func(jobs.QueueStats) []any { return nil }}.Print(cmd, items...)
	}
	return cli.PrintRows(cmd, []string{
		"POOL", "KIND", "LANE", "TENANT", "LEVEL", "WAITING", "RUNNING", "RETRIED", "PAUSED", "AGENTS",
	}, rows...)
}

// poolOf returns the pool of a name on the command line, or an error of usage. It accepts no other
// case and no abbreviation.
func poolOf(text string) (jobs.Pool, error) {
	if p := jobs.Pool(text); p == jobs.PoolCPU || p == jobs.PoolGPU {
		return p, nil
	}
	return "", command.Usage("pool %q: use cpu or gpu", text)
}
