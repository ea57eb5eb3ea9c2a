package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// natsFlag adds the flags of a connection.
func natsFlag(f *pflag.FlagSet) { command.NATSFlags(f, false) }

// connected makes a command's RunE of a function that needs a connection.
func connected(fn func(cmd *cobra.Command, args []string, c *natsq.Conn) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		url, login := command.NATS(cmd)
		c, err := natsq.Connect(cmd.Context(), natsq.Options{URL: url, Login: login, Name: "exoswarm " + cmd.Name()})
		if err != nil {
			return err
		}
		defer c.Close()
		return fn(cmd, args, c)
	}
}

// group makes a command that only has commands below it.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	cmd.AddCommand(below...)
	return cmd
}

// poolOf reads a pool from the command line.
func poolOf(text string) (jobs.Pool, error) {
	if p := jobs.Pool(text); p == jobs.PoolCPU || p == jobs.PoolGPU {
		return p, nil
	}
	return "", command.Usage("pool %q: use cpu or gpu", text)
}
