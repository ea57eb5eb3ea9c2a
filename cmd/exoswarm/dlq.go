package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// dlqCommand returns exoswarm dlq: the dead letters of jobs that have failed for good. A dead
// letter has the message of its job and the reason. It stays until it is repeated or removed. The
// login must be that of an operator: tenants use exoswarm job retry.
func dlqCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List dead letters, oldest first", Args: cobra.NoArgs,
		RunE: connect.Connected(dlqList),
	}
	list.Flags().Int("limit", 100, "most letters to list; 0 for all")
	show := &cobra.Command{
		Use: "show ID", Short: "Show one dead letter with the message of its job", Args: cobra.ExactArgs(1),
		RunE: connect.Connected(dlqShow),
	}
	again := &cobra.Command{
		Use: "redrive [ID]", Short: "Queue the jobs of dead letters again, under their ids",
		Args: cobra.MaximumNArgs(1), RunE: connect.Connected(dlqRedrive),
	}
	purge := &cobra.Command{
		Use: "purge [ID]", Short: "Remove dead letters; their jobs cannot be repeated", Args: cobra.MaximumNArgs(1),
		RunE: connect.Connected(dlqPurge),
	}
	all := []*cobra.Command{list, show, again, purge}
	for _, c := range all {
		connect.Flags(c.Flags())
		command.ListFlag(c.Flags())
	}
	// show takes an id only, so it has no filter.
	for _, c := range []*cobra.Command{list, again, purge} {
		c.Flags().String("pool", "", "only of this pool")
		c.Flags().String("kind", "", "only of this kind")
		c.Flags().String("tenant", "", "only of this tenant")
	}
	for _, c := range []*cobra.Command{again, purge} {
		c.Flags().Bool("all", false, "all dead letters")
	}
	return command.Group("dlq", "List, repeat and remove jobs that failed for good", all...)
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

// chosen returns deadFilter for a command that changes letters. All of them must be asked for with
// --all. So a forgotten argument does not change all letters.
func chosen(cmd *cobra.Command, args []string) (jobs.DeadFilter, error) {
	d := deadFilter(cmd.Flags(), args)
	if all, _ := cmd.Flags().GetBool("all"); d == (jobs.DeadFilter{}) && !all {
		return d, command.Usage("dlq %s: name an id, --pool, --kind, --tenant or --all", cmd.Name())
	}
	return d, nil
}

// dlqList prints dead letters as they are read, oldest first, one item for each, a
// jobs.DeadLetter.
//
// Fields: seq, id, pool, kind, tenant, reason with its code and message, attempts, worker, died,
// and data, the message as base64.
func dlqList(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	limit, _ := cmd.Flags().GetInt("limit")
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(),
		"JOB", "POOL", "KIND", "TENANT", "DIED", "ATTEMPTS", "CODE",
		"REASON")
	if err != nil {
		return err
	}
	var perr error
	err = c.Letters.List(cmd.Context(), deadFilter(cmd.Flags(), args), func(d jobs.DeadLetter) bool {
		perr = p.Item(d, d.ID, d.Pool, d.Kind, d.Tenant, d.Died.Format(time.RFC3339), d.Attempts, d.Reason.Code,
			d.Reason.Message)
		// An error of the printer ends the list; it is joined below.
		return perr == nil && (limit == 0 || p.Len() < limit)
	})
	return errors.Join(err, perr, p.End())
}

// dlqShow prints one dead letter with the message of its job. An id without a letter is
// jobs.ErrNotFound. The message is printed as text in a table, and as base64 in the other formats.
func dlqShow(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "JOB", "CODE", "REASON", "MESSAGE")
	if err != nil {
		return err
	}
	var perr error
	err = c.Letters.List(cmd.Context(), jobs.DeadFilter{ID: args[0]}, func(d jobs.DeadLetter) bool {
		perr = p.Item(d, d.ID, d.Reason.Code, d.Reason.Message, string(d.Data))
		return perr == nil
	})
	if err := errors.Join(err, perr, p.End()); err != nil {
		return err
	}
	if p.Len() == 0 {
		return fmt.Errorf("dead letter %s: %w", args[0], jobs.ErrNotFound)
	}
	return nil
}

// dlqRedrive queues the jobs of the chosen letters again under their ids, and prints their number,
// also when some are refused. Their letters are removed, and so are their failed results.
func dlqRedrive(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	f, err := chosen(cmd, args)
	if err != nil {
		return err
	}
	out, err := operate(cmd, c, letterRequest("dlq.redrive", f))
	return printCount(cmd, "redriven", out.Count, err)
}

// dlqPurge removes the chosen letters, and prints their number. Their jobs cannot be repeated
// afterwards.
func dlqPurge(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	f, err := chosen(cmd, args)
	if err != nil {
		return err
	}
	out, err := operate(cmd, c, letterRequest("dlq.purge", f))
	return printCount(cmd, "purged", out.Count, err)
}

// letterRequest returns the request of an action on the letters of a filter.
func letterRequest(name string, f jobs.DeadFilter) action.Request {
	return action.Request{Action: name, Object: f.ID, Pool: string(f.Pool), Kind: f.Kind, Tenant: f.Tenant}
}

// printCount prints a number of dead letters as one item, also when err is not nil, which it
// returns.
func printCount(cmd *cobra.Command, what string, n uint64, err error) error {
	p, perr := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "LETTERS "+what)
	if perr != nil {
		return errors.Join(err, perr)
	}
	return errors.Join(err, p.Item(map[string]uint64{what: n}, n), p.End())
}
