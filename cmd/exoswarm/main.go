// Command exoswarm is the operator's tool: it runs a swarm over files, in one process or on a cluster, and starts a NATS
// server for the agents to meet at.
package main

import (
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
)

func main() { command.Main(root()) }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exoswarm",
		Short: "Stateful neural agents for very many entities",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.CompletionOptions.HiddenDefaultCmd = true
	cmd.AddCommand(
		quickstartCommand(), runCommand(), swarmCommand(), snapshotCommand(), natsCommand(), versionCommand(),
		submitCommand(), jobCommand(), queueCommand(), cronCommand(), tenantCommand(), dlqCommand(), agentCommand(), initCommand(), authCommand(), tierCommand(),
	)
	return cmd
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			version := "unknown"
			if info, ok := debug.ReadBuildInfo(); ok {
				version = info.Main.Version + " " + info.GoVersion
			}
			cmd.Println("exoswarm", version)
		},
	}
}
