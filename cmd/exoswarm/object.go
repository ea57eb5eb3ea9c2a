package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
)

func objectCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the objects of the queue's store and the jobs that they belong to",
		Args: cobra.NoArgs, RunE: connected(objectList),
		Long: `List the objects of the queue's store. An object is kept as long as anything is known
of its job: while it waits or runs, while its dead letter or its result is there, while its swarm
is. It is orphaned afterwards, and a CPU agent removes it. One that is unowned belongs to no job and
stays.`,
	}
	list.Flags().Bool("orphans", false, "those alone whose job is gone")
	sweep := &cobra.Command{
		Use: "sweep", Short: "Show the objects whose job is gone, and with --yes remove them", Args: cobra.NoArgs,
		RunE: connected(objectSweep),
	}
	sweep.Flags().Duration("grace", objects.Grace, "leave those that were stored, they or others of their job, "+
		"within this time")
	sweep.Flags().Bool("yes", false, "remove them")
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Remove an object, whatever needs it", Args: cobra.ExactArgs(1),
		RunE: connected(objectDelete),
	}
	all := []*cobra.Command{list, sweep, remove}
	for _, c := range all {
		natsFlag(c.Flags())
		if c != remove {
			listing.Flag(c.Flags())
		}
	}
	return command.Group("object", "Look at the objects of the queue's store and remove them", all...)
}

func objectPrinter(cmd *cobra.Command) (*listing.Printer, func(objects.Object) error, error) {
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "OBJECT", "STATE", "JOB", "TENANT", "SIZE", "STORED")
	return p, func(o objects.Object) error {
		return p.Item(o, o.Name, o.State, o.Job, o.Tenant, o.Size, o.Stored.Format(time.RFC3339))
	}, err
}

func objectList(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	orphans, _ := cmd.Flags().GetBool("orphans")
	p, show, err := objectPrinter(cmd)
	if err != nil {
		return err
	}
	var perr error
	err = c.Objects.Objects(cmd.Context(), func(o objects.Object) bool {
		if !orphans || o.State == objects.Orphaned {
			perr = show(o)
		}
		return perr == nil
	})
	return errors.Join(err, perr, p.End())
}

func objectSweep(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	grace, _ := cmd.Flags().GetDuration("grace")
	yes, _ := cmd.Flags().GetBool("yes")
	if grace < 0 {
		return command.Usage("--grace %v: use 0 or more", grace)
	}
	p, show, err := objectPrinter(cmd)
	if err != nil {
		return err
	}
	var perr error
	err = c.Objects.SweepObjects(cmd.Context(), grace, !yes,
		func(o objects.Object) { perr = errors.Join(perr, show(o)) })
	if err = errors.Join(err, perr, p.End()); err == nil && !yes && p.Len() > 0 {
		cmd.PrintErrf("%d to remove: add --yes\n", p.Len())
	}
	return err
}

func objectDelete(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	return c.Objects.DeleteObject(cmd.Context(), args[0], jobs.Owner{}) // the name as the list shows it, of any tenant
}
