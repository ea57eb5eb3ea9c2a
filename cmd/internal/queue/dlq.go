package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// DeadLetters returns exoswarm dlq: the dead letters of jobs that have failed for good. A dead
// letter has the message of its job and the reason. It stays until it is repeated or removed. The
// login must be one of an operator: tenants use exoswarm job retry.
func DeadLetters() *cobra.Command {
	filter := func(f *pflag.FlagSet) {
		f.String("pool", "", "only of this pool")
		f.String("kind", "", "only of this kind")
		f.String("tenant", "", "only of this tenant")
	}
	choice := func(f *pflag.FlagSet) {
		filter(f)
		f.Bool("all", false, "all dead letters")
	}
	const short = "List, repeat and remove jobs that failed for good"
	return cli.Noun{Use: "dlq", Short: short, Names: cli.DeadIDs, Verbs: []cli.Verb{
		{
			Use: "list", Short: "List dead letters, oldest first", Lists: true, Do: cli.Queue(dlqList),
			Flags: func(f *pflag.FlagSet) {
				filter(f)
				f.Int("limit", 100, "most letters to list; 0 for all")
			},
		},
		{
			Use: "show ID", Short: "Show one dead letter with the message of its job", Lists: true,
			Do: cli.Queue(dlqShow),
		},
		{
			Use: "redrive [ID]", Short: "Queue the jobs of dead letters again, under their ids", Lists: true,
			Flags: choice, Do: onLetters("redriven"),
		},
		{
			Use: "purge [ID]", Short: "Remove dead letters; their jobs cannot be repeated", Lists: true,
			Flags: choice, Do: onLetters("purged"),
		},
	}}.Command()
}

// deadFilter returns the filter of --pool, --kind, --tenant and an optional id. Without any of them
// it selects all letters. Several of them select the letters that match all.
func deadFilter(f *pflag.FlagSet, args []string) (d jobs.DeadFilter) {
	pool, _ := f.GetString("pool")
	d.Pool = jobs.Pool(pool)
	d.Kind, _ = f.GetString("kind")
	d.Tenant, _ = f.GetString("tenant")
	if len(args) > 0 {
		d.ID = args[0]
	}
	return d
}

// dlqList prints dead letters as they are read, oldest first, one item for each, a
// jobs.DeadLetter.
//
// Fields: seq, id, pool, kind, tenant, reason with its code and message, attempts, worker, died,
// and data, the message as base64.
func dlqList(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	limit, _ := cmd.Flags().GetInt("limit")
	return cli.Table[jobs.DeadLetter]{
		Columns: []string{"JOB", "POOL", "KIND", "TENANT", "DIED", "ATTEMPTS", "CODE", "REASON"},
		Row: func(d jobs.DeadLetter) []any {
			return []any{
				d.ID, d.Pool, d.Kind, d.Tenant, d.Died.Format(time.RFC3339), d.Attempts, d.Reason.Code,
				d.Reason.Message,
			}
		},
	}.Stream(cmd, limit, func(fn func(jobs.DeadLetter) bool) error {
		return c.Letters.List(cmd.Context(), deadFilter(cmd.Flags(), args), fn)
	})
}

// dlqShow prints one dead letter with the message of its job. An id without a letter is
// jobs.ErrNotFound. The message is printed as text in a table, and as base64 in the other formats.
func dlqShow(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	found := false
	err := cli.Table[jobs.DeadLetter]{
		Columns: []string{"JOB", "CODE", "REASON", "MESSAGE"},
		Row: func(d jobs.DeadLetter) []any {
			found = true
			return []any{d.ID, d.Reason.Code, d.Reason.Message, string(d.Data)}
		},
	}.Stream(cmd, 0, func(fn func(jobs.DeadLetter) bool) error {
		return c.Letters.List(cmd.Context(), jobs.DeadFilter{ID: args[0]}, fn)
	})
	if err == nil && !found {
		err = fmt.Errorf("dead letter %s: %w", args[0], jobs.ErrNotFound)
	}
	return err
}

// onLetters returns the action that changes the chosen letters, and prints their number, also when
// some are refused. redriven letters are removed and their jobs are queued again under their ids,
// with their failed results removed; the jobs of purged letters cannot be repeated.
//
// All letters must be asked for with --all, so that a forgotten argument does not change all.
func onLetters(done string) cli.Action {
	return cli.Queue(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
		d := deadFilter(cmd.Flags(), args)
		if all, _ := cmd.Flags().GetBool("all"); d == (jobs.DeadFilter{}) && !all {
			return command.Usage("dlq %s: name an id, --pool, --kind, --tenant or --all", cmd.Name())
		}
		out, err := cli.Operate(cmd, c, action.Request{
			Action: "dlq." + cmd.Name(), Object: d.ID, Pool: string(d.Pool), Kind: d.Kind, Tenant: d.Tenant,
		})
		return printCount(cmd, done, out.Count, err)
	})
}

// printCount prints a number of dead letters as one item, also when err is not nil, which it
// returns.
func printCount(cmd *cobra.Command, what string, n uint64, err error) error {
	return errors.Join(err, cli.PrintOne(cmd, []string{"LETTERS " + what}, map[string]uint64{what: n}, n))
}
