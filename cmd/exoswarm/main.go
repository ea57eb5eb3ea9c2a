// Command exoswarm is the operator's tool: it runs a swarm over files, in one process or on a
// cluster, and starts a NATS server for the agents to meet at.
package main

import (
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/command"
)

func main() { command.Main(root()) }

func root() *cobra.Command {
	cmd := command.Group("exoswarm", "Stateful neural agents for very many entities",
		quickstartCommand(), runCommand(), swarmCommand(), snapshotCommand(), natsCommand(),
		submitCommand(), jobCommand(), queueCommand(), cronCommand(), tenantCommand(), dlqCommand(), objectCommand(),
		agentCommand(), initCommand(), authCommand(), tierCommand(),
	)
	checkFirst(cmd)
	completeNames(cmd)
	return cmd
}

// checkFirst makes every command check its format of output before it connects to anything.
func checkFirst(cmd *cobra.Command) {
	if cmd.Flags().Lookup("output") != nil {
		before := cmd.PreRunE
		cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
			if err := command.CheckOutput(cmd.Flags()); err != nil || before == nil {
				return err
			}
			return before(cmd, args)
		}
	}
	for _, c := range cmd.Commands() {
		checkFirst(c)
	}
}
