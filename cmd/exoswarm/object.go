package main

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
)

// objectCommand returns exoswarm object: the inputs and outputs of jobs in the object store of the
// cluster. Its commands see the objects of all tenants, so they need the login of an operator.
func objectCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the objects of the queue's store and the jobs that they belong to",
		Args: cobra.NoArgs, RunE: connect.Connected(objectList),
		Long: `List the objects of the queue's store. An object is kept while its job waits or runs,
and while the job's dead letter, result or swarm exists. Then it is orphaned, and a CPU agent
removes it. An unowned object belongs to no job, and stays.`,
	}
	list.Flags().Bool("orphans", false, "only objects whose job is gone")
	// CPU agents sweep by themselves; the command is for a disk that must have room now.
	sweep := &cobra.Command{
		Use: "sweep", Short: "List the objects whose job is gone, and remove them with --yes", Args: cobra.NoArgs,
		RunE: connect.Connected(objectSweep),
	}
	sweep.Flags().Duration("grace", objects.Grace, "keep objects of a job that has stored one within this "+
		"time")
	sweep.Flags().Bool("yes", false, "remove them")
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Remove an object, also if a job needs it", Args: cobra.ExactArgs(1),
		RunE: connect.Connected(objectDelete),
	}
	all := []*cobra.Command{list, sweep, remove}
	for _, c := range all {
		connect.Flags(c.Flags())
		if c != remove {
			command.ListFlag(c.Flags())
		}
	}
	return command.Group("object", "List and remove the objects of the queue's store", all...)
}

// objectPrinter begins a list of objects, and returns the function that prints one. The caller ends
// the list. Sizes are in bytes in every format.
func objectPrinter(cmd *cobra.Command) (*command.Printer, func(objects.Object) error, error) {
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "OBJECT", "STATE", "JOB", "TENANT", "SIZE", "STORED")
	return p, func(o objects.Object) error {
		return p.Item(o, o.Name, o.State, o.Job, o.Tenant, o.Size, o.Stored.Format(time.RFC3339))
	}, err
}

// objectList prints the objects as they are read, one item for each, an objects.Object. With
// --orphans it leaves out those that a job needs or that belong to none.
//
// Fields: name, state, job, tenant, size in bytes and stored, the time.
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

// objectSweep prints the orphaned objects that are older than --grace, and removes them with
// --yes. CPU agents do the same by themselves with their own --object-grace.
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
	// The third argument asks for a list only.
	err = c.Objects.SweepObjects(cmd.Context(), grace, !yes,
		func(o objects.Object) { perr = errors.Join(perr, show(o)) })
	// Nothing is removed without --yes, and the user learns how much there is.
	if err = errors.Join(err, perr, p.End()); err == nil && !yes && p.Len() > 0 {
		cmd.PrintErrf("%d to remove: add --yes\n", p.Len())
	}
	return err
}

// objectDelete removes an object by its full name, as the list shows it, without asking whether a
// job needs it. A job that reads the object later fails with an error of its input. It asks for no
// confirmation.
func objectDelete(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	return recorded(cmd, c, "object.delete", args[0], func() error {
		// The name is as the list shows it, of any tenant.
		return c.Objects.DeleteObject(cmd.Context(), args[0], jobs.Owner{})
	})
}
