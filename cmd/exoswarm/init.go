package main

import (
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// initCommand returns exoswarm init. Other commands and agents create missing streams when they
// connect; init shows the changes before, and sets the number of replicas. It changes the settings
// of streams and not their contents.
func initCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create or update the streams of a NATS server, after showing what would change",
		Long: `Compare the streams of a NATS server with those of this version, and show the
differences. --yes applies them. A change that could lose data is never applied: the command names
the setting and how to change it by hand.`,
		Args: cobra.NoArgs,
		RunE: initServer,
	}
	connect.Flags(cmd.Flags())
	command.ListFlag(cmd.Flags())
	cmd.Flags().Int("replicas", 1, "replicas of every stream: 3 in a NATS cluster")
	cmd.Flags().Bool("yes", false, "apply the changes")
	return cmd
}

// initServer connects without creating missing streams, unlike other commands, so that the plan
// shows them.
//
// A second init with the same flags prints an empty list.
func initServer(cmd *cobra.Command, _ []string) error {
	f := cmd.Flags()
	o, err := connect.Options(cmd, nil)
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
	return connect.Within(cmd, c, func() error { return prepare(cmd, c, yes) })
}

// prepare prints the changes that the streams of the server need, one item for each, and applies
// them with yes. Apply refuses changes that could lose data and applies none then; the table marks
// them in its last column.
func prepare(cmd *cobra.Command, c *natsq.Conn, yes bool) error {
	f := cmd.Flags()
	// Plan compares the streams of the server with those of this program, and changes nothing.
	plan, err := c.Plan(cmd.Context())
	if err != nil {
		return err
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), f, "STREAM", "SETTING", "HAVE", "WANT", "CAN LOSE DATA")
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
	// Apply compares once more, so it refuses a change that has become dangerous since. The number
	// below is that of the printed plan.
	if _, err := c.Apply(cmd.Context()); err != nil {
		return err
	}
	cmd.PrintErrf("%d changes applied\n", len(plan))
	return nil
}
