package queue

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/objects"
)

// Objects returns exoswarm object: the inputs and outputs of jobs in the object store of the
// cluster. Its commands see the objects of all tenants, so they need the login of an operator.
func Objects() *cobra.Command {
	const short = "List and remove large inputs and outputs of jobs in the queue's store"
	return cli.Noun{Use: "object", Short: short, Verbs: []cli.Verb{
		{
			Use: "list", Short: "List the objects of the queue's store and the jobs that they belong to", Lists: true,
			Long: `List the objects of the queue's store. An object is kept while its job waits or runs,
and while the job's dead letter, result or swarm exists. Then it is orphaned, and a CPU agent
removes it. An unowned object belongs to no job, and stays.`,
			Flags: func(f *pflag.FlagSet) { f.Bool("orphans", false, "only objects whose job is gone") },
			Do:    cli.Queue(objectList),
		},
		// CPU agents sweep by themselves; the command is for a disk that must have room now.
		{
			Use: "sweep", Short: "List the objects whose job is gone, and remove them with --yes", Lists: true,
			Flags: func(f *pflag.FlagSet) {
				f.Duration("grace", objects.Grace, "keep objects of a job that has stored one within this time")
				f.Bool("yes", false, "remove them")
			},
			Do: cli.Queue(objectSweep),
		},
		// The name is as the list shows it, of any tenant. Nobody asks whether a job needs the object:
		// a job that reads it later fails with an error of its input.
		{
			Use: "delete NAME", Short: "Remove an object, also if a job needs it",
			Do: cli.Queue(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
				return cli.Recorded(cmd, c, "object.delete", args[0], func() error {
					return c.Objects.DeleteObject(cmd.Context(), args[0], jobs.Owner{})
				})
			}),
		},
	}}.Command()
}

// objectTable has objects, with their sizes in bytes.
//
// Fields: name, state, job, tenant, size and stored, the time.
var objectTable = cli.Table[objects.Object]{
	Columns: []string{"OBJECT", "STATE", "JOB", "TENANT", "SIZE", "STORED"},
	Row: func(o objects.Object) []any {
		return []any{o.Name, o.State, o.Job, o.Tenant, o.Size, o.Stored.Format(time.RFC3339)}
	},
}

// objectList prints the objects as they are read. With --orphans it leaves out objects that a job
// needs or that belong to no job.
func objectList(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	orphans, _ := cmd.Flags().GetBool("orphans")
	return objectTable.Stream(cmd, 0, func(fn func(objects.Object) bool) error {
		return c.Objects.Objects(cmd.Context(), func(o objects.Object) bool {
			return orphans && o.State != objects.Orphaned || fn(o)
		})
	})
}

// objectSweep prints the orphaned objects that are older than --grace, and removes them with
// --yes. CPU agents do the same by themselves with their own --object-grace.
func objectSweep(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	grace, _ := cmd.Flags().GetDuration("grace")
	yes, _ := cmd.Flags().GetBool("yes")
	if grace < 0 {
		return command.Usage("--grace %v: use 0 or more", grace)
	}
	n := 0
	err := objectTable.Stream(cmd, 0, func(fn func(objects.Object) bool) error {
		// The sweep continues when the list cannot be printed.
		return c.Objects.SweepObjects(cmd.Context(), grace, !yes, func(o objects.Object) { fn(o); n++ })
	})
	// Nothing is removed without --yes, and the user learns how much there is.
	if err == nil && !yes && n > 0 {
		cmd.PrintErrf("%d to remove: add --yes\n", n)
	}
	return err
}
