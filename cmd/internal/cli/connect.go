package cli

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// ConnectionFlags adds the flags of a connection to the queue: the server, the login and the
// patience. They have environment variables, which package command reads before RunE.
func ConnectionFlags(f *pflag.FlagSet) {
	command.NATSFlags(f, false)
	PatienceFlag(f)
}

// PatienceFlag adds --patience. Its default ends a command Within 5 s after the loss of its server.
func PatienceFlag(f *pflag.FlagSet) {
	f.Duration("patience", 4*time.Second, "how long the NATS server may be unreachable before the command ends, 1s "+
		"or more")
	command.GroupFlags(f, command.Connection, "patience")
}

// Options returns the options of a connection that the flags of an action describe. tracing may be
// nil. Operators see the name of the command as the name of the connection.
func Options(cmd *cobra.Command, tracing *command.Tracing) (natsconn.Options, error) {
	o := natsconn.Options{Name: strings.TrimSpace("exoswarm " + cmd.Name())}
	o.URL, o.Login = command.NATS(cmd)
	if tracing != nil {
		o.Tracing = tracing.Provider()
	}
	o.NoSpace = func() {
		cmd.PrintErrln("waiting: the disk of the NATS server, or what its account may store, is used up: " +
			"free some of it")
	}
	var err error
	o.GiveUp, err = Patience(cmd)
	return o, err
}

// Patience returns the value of --patience, or an error of usage.
func Patience(cmd *cobra.Command) (time.Duration, error) {
	d, _ := cmd.Flags().GetDuration("patience")
	if d < time.Second {
		return 0, command.Usage("--patience %v: use 1s or more", d)
	}
	return d, nil
}

// closeAfter is the time that an interrupted command has before its connection is closed. Some
// calls of the NATS client end in no other way. A command must end soon after an interrupt, also if
// it waits for a server that does not answer.
const closeAfter = 2 * time.Second

// Link is an action that connects as its function wants, with Options.
func Link(run func(cmd *cobra.Command, args []string) error) Action {
	return Action{ConnectionFlags, run}
}

// Queue is an action that needs a connection to the queue. It traces the command, and ends it with
// the connection when the server is lost. fn uses the context of cmd, which ends with a signal or
// the server, and does not close c. The streams of the queue exist when fn is called.
func Queue(fn func(cmd *cobra.Command, args []string, c *natsq.Conn) error) Action {
	return connected(func(ctx context.Context, o natsconn.Options) (*natsq.Conn, command.Link, error) {
		c, err := natsq.Connect(ctx, o)
		return c, c, err
	}, fn)
}

// Jobs is an action that needs a client of jobs. Unlike Queue, it takes the login of a tenant,
// which reaches the queue through the gateway of the agents alone. The direct way is tried first; a
// login that the queue refuses is taken for one of a tenant.
func Jobs(fn func(cmd *cobra.Command, args []string, c command.JobClient) error) Action {
	return connected(command.ConnectClient, fn)
}

// connected returns an action whose function gets what connect returns. It closes the link after
// the function.
func connected[C any](
	connect func(ctx context.Context, o natsconn.Options) (C, command.Link, error),
	fn func(cmd *cobra.Command, args []string, c C) error,
) Action {
	return Link(func(cmd *cobra.Command, args []string) error {
		tracing, err := startTracing(cmd)
		if err != nil {
			return err
		}
		defer tracing.Close()
		o, err := Options(cmd, tracing)
		if err != nil {
			return err
		}
		cmd.SetContext(tracing.Context(cmd.Context()))
		c, link, err := connect(cmd.Context(), o)
		if err != nil {
			return err
		}
		defer link.Close()
		return Within(cmd, link, func() error { return fn(cmd, args, c) })
	})
}

// Within runs a command until it ends or its server is lost; then its error is the loss. After an
// interrupt fn has closeAfter to return; then the link is closed below it. fn must return when its
// context ends; the close of the link is for calls that do not.
func Within(cmd *cobra.Command, l command.Link, fn func() error) error {
	// ctx ends with the command's context or with the loss of the server, whichever comes first.
	ctx, stop := command.WithLink(cmd.Context(), l)
	defer stop()
	ended := make(chan struct{})
	// Closing ended stops the timer below before the deferred stop of AfterFunc runs.
	defer close(ended)
	defer context.AfterFunc(cmd.Context(), func() {
		late := time.NewTimer(closeAfter)
		defer late.Stop()
		select {
		case <-late.C:
			l.Close()
		case <-ended:
		}
	})()
	cmd.SetContext(ctx)
	return l.LostError(fn())
}

// startTracing returns the tracing of a command that the OTEL_* variables describe; its own errors
// go to stderr. The caller closes it at the end of the command, which sends the last spans. Without
// these variables it traces nothing.
func startTracing(cmd *cobra.Command) (*command.Tracing, error) {
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return command.NewTracing(cmd.Context(), "exoswarm", command.AgentName(cmd.Name()), log)
}
