package cluster

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// Init returns exoswarm init. Other commands and agents create missing streams when they connect;
// init shows the changes before, and sets the number of replicas. It changes the settings of
// streams and not their contents.
func Init() *cobra.Command {
	return cli.Verb{
		Use: "init", Short: "Create or update the streams of a NATS server, after showing what would change",
		Long: `Compare the streams of a NATS server with the streams of this version, and show
the differences. --yes applies them. A change that could lose data is never applied: the command names
the setting and how to change it by hand.`,
		Lists: true,
		Flags: func(f *pflag.FlagSet) {
			f.Int("replicas", 1, "replicas of every stream: 3 in a NATS cluster")
			f.Bool("yes", false, "apply the changes")
		},
		Do: cli.Link(initServer),
	}.Command()
}

// initServer connects without creating missing streams, unlike other commands, so that the plan
// shows them.
//
// A second init with the same flags prints an empty list.
func initServer(cmd *cobra.Command, _ []string) error {
	f := cmd.Flags()
	o, err := cli.Options(cmd, nil)
	if err != nil {
		return err
	}
	replicas, _ := f.GetInt("replicas")
	yes, _ := f.GetBool("yes")
	// The server allows no more than 5.
	if replicas < 1 || replicas > 5 {
		return command.Usage("--replicas %d: use 1 to 5", replicas)
	}
	// Replicas is part of the plan, so it is an option of the connection.
	o.Replicas, o.Bare = replicas, true
	c, err := natsq.Connect(cmd.Context(), o)
	if err != nil {
		return err
	}
	defer c.Close()
	return cli.Within(cmd, c, func() error { return prepare(cmd, c, yes) })
}

// prepare prints the changes that the streams of the server need, one item for each, and applies
// them with yes. Apply refuses changes that could lose data and applies none then; the table marks
// them in its last column.
func prepare(cmd *cobra.Command, c *natsq.Conn, yes bool) error {
	// Plan compares the streams of the server with the streams that this version needs, and changes
	// nothing.
	plan, err := c.Plan(cmd.Context())
	if err != nil {
		return err
	}
	if confirmed, err := showPlan(cmd, yes, planTable, plan); !confirmed {
		return err
	}
	// Apply compares once more, so it refuses a change that has become dangerous since. The number
	// below counts the changes of the printed plan.
	if _, err := c.Apply(cmd.Context()); err != nil {
		return err
	}
	cmd.PrintErrf("%d changes applied\n", len(plan))
	return nil
}

var planTable = cli.Table[natsconn.Change]{
	Columns: []string{"STREAM", "SETTING", "HAVE", "WANT", "CAN LOSE DATA"},
	Row:     func(c natsconn.Change) []any { return []any{c.Stream, c.Field, c.Have, c.Want, c.Drops} },
}

// showPlan prints a list of changes, and reports whether they are to be made: there are some, and
// --yes is given. Nothing to do is a success.
func showPlan[T any](cmd *cobra.Command, yes bool, t cli.Table[T], plan []T) (confirmed bool, err error) {
	if err := t.Print(cmd, plan...); err != nil {
		return false, err
	}
	switch {
	case len(plan) == 0:
		cmd.PrintErrln("nothing to change")
	case !yes:
		cmd.PrintErrln("nothing was changed: apply it with --yes")
	default:
		return true, nil
	}
	return false, nil
}
