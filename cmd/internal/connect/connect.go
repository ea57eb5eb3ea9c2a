package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/jobclient"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// natsFlag adds the flags of a connection to the queue: the server, the login and the patience.
// Every command that uses connected or submitting has them. The flags have environment variables,
// which package command reads before RunE.
func natsFlag(f *pflag.FlagSet) {
	command.NATSFlags(f, false)
	patienceFlag(f)
}

// patienceFlag adds --patience. Its default ends a command within 5 s after the loss of its server.
func patienceFlag(f *pflag.FlagSet) {
	f.Duration("patience", 4*time.Second, "how long the NATS server may be unreachable before the command ends, 1s "+
		"or more")
}

// natsOptions returns the options of a connection that the flags of natsFlag describe. tracing may
// be nil. The name of the connection, which operators see on the server, is that of the command.
func natsOptions(cmd *cobra.Command, tracing *command.Tracing) (natsconn.Options, error) {
	o := natsconn.Options{Name: strings.TrimSpace("exoswarm " + cmd.Name())}
	o.URL, o.Login = command.NATS(cmd)
	if tracing != nil {
		o.Tracing = tracing.Provider()
	}
	var err error
	o.GiveUp, err = patience(cmd)
	return o, err
}

// patience returns the value of --patience, or an error of usage.
func patience(cmd *cobra.Command) (time.Duration, error) {
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

// connected makes a RunE of a function that needs a connection to the queue. It traces the command,
// and ends it with the connection when the server is lost. fn uses the context of cmd, which ends
// with a signal or the server, and does not close c. The streams of the queue exist when fn is
// called.
func connected(fn func(cmd *cobra.Command, args []string, c *natsq.Conn) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		tracing, err := newTracing(cmd)
		if err != nil {
			return err
		}
		defer tracing.Close()
		o, err := natsOptions(cmd, tracing)
		if err != nil {
			return err
		}
		cmd.SetContext(tracing.Context(cmd.Context()))
		c, err := natsq.Connect(cmd.Context(), o)
		if err != nil {
			return err
		}
		defer c.Close()
		return within(cmd, c, func() error { return fn(cmd, args, c) })
	}
}

// within runs a command until it ends or its server is lost; then its error is the loss. After an
// interrupt fn has closeAfter to return; then the link is closed below it. fn must return when its
// context ends; the close of the link is for calls that do not.
func within(cmd *cobra.Command, l command.Link, fn func() error) error {
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

// submitting makes a command's RunE of a function that needs a client of jobs. Unlike connected, it
// takes the login of a tenant, which reaches the queue through the gateway of the agents alone. The
// direct way is tried first; a login that the queue refuses is taken for that of a tenant.
func submitting(fn func(cmd *cobra.Command, args []string, c jobclient.Client) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, args []string) error {
		tracing, err := newTracing(cmd)
		if err != nil {
			return err
		}
		defer tracing.Close()
		o, err := natsOptions(cmd, tracing)
		if err != nil {
			return err
		}
		cmd.SetContext(tracing.Context(cmd.Context()))
		c, link, err := jobclient.Connect(cmd.Context(), o)
		if err != nil {
			return err
		}
		defer link.Close()
		return within(cmd, link, func() error { return fn(cmd, args, c) })
	}
}

// newTracing returns the tracing of a command that the OTEL_* variables describe; its own errors go
// to stderr. The caller closes it at the end of the command, which sends the last spans. Without
// these variables it traces nothing.
func newTracing(cmd *cobra.Command) (*command.Tracing, error) {
	log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
	return command.NewTracing(cmd.Context(), "exoswarm", command.AgentName(cmd.Name()), log)
}

// poolOf returns the pool of a name on the command line, or an error of usage. It accepts no other
// case and no abbreviation.
func poolOf(text string) (jobs.Pool, error) {
	if p := jobs.Pool(text); p == jobs.PoolCPU || p == jobs.PoolGPU {
		return p, nil
	}
	return "", command.Usage("pool %q: use cpu or gpu", text)
}
