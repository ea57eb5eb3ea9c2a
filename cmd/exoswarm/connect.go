package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// natsFlag adds --nats. Its default is NATS_URL where that is set, as for the tools of NATS.
func natsFlag(f *pflag.FlagSet) {
	url := os.Getenv("NATS_URL")
	if url == "" {
		url = "nats://127.0.0.1:4222"
	}
	f.String("nats", url, "URL of the NATS server")
}

// connected makes a command's RunE of a function that needs a connection.
func connected(fn func(cmd *cobra.Command, args []string, c *natsq.Conn) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		url, _ := cmd.Flags().GetString("nats")
		c, err := natsq.Connect(cmd.Context(), natsq.Options{URL: url, Name: "exoswarm " + cmd.Name()})
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
