// Command exoswarm is the tool of users and operators: it runs swarms over files, in one process or
// on a cluster, creates swarms that last, submits jobs, and maintains the cluster.
//
// Its files are named after the groups of commands. They declare flags, call the packages that do
// the work, and print: runjob for runs, swarmclient for swarms, jobclient for jobs, listing for
// lists. With -o json, jsonl or yaml a list has the items that the comments of the commands name;
// their fields are part of the interface. Messages for people go to stderr. Exit codes are those of
// package command: 0, 1 for a failure, 2 for a wrong input or command line, 130 for an
// interruption.
//
// A command runs in this order. Package command sets flags that are not given from the environment.
// PreRunE checks -o and what else can be checked without a server. connect.Connected or
// connect.Submitting connects. Then the function of the command works with a context that ends with
// a signal or with the loss of the server. It prints items as they come, so a list may end with an
// error after its first items.
//
// Commands that plan changes (init, auth init, object sweep) print the plan, and change nothing
// without --yes.
package main

import (
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/clustercommand"
	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/cmd/internal/evaluatecommand"
	"github.com/exoswarm/exoswarm/cmd/internal/gpucommand"
	"github.com/exoswarm/exoswarm/cmd/internal/kernelprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/serveprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/swarmcommand"
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/drivers"  // of databases and object stores
	_ "github.com/exoswarm/exoswarm/internal/app/bucket/cloud" // s3:// and gs://
	"github.com/exoswarm/exoswarm/internal/app/command"
)

func main() {
	kernelprocess.Main() // a process of serve for kernels of jobs
	command.Main(root())
}

// root returns the command with all its sub-commands. main.go lists them; each group has a file
// of its name.
func root() *cobra.Command {
	cmd := command.Group("exoswarm", "Stateful neural agents for very many entities",
		quickstartCommand(), serveprocess.Command(), serveprocess.UICommand(), serveprocess.MetricsCommand(),
		runCommand(), detectCommand(),
		clustercommand.NewDetector(jobLogs, recorded), swarmcommand.NewSpec(), evaluatecommand.NewEval(),
		evaluatecommand.NewReport(), evaluatecommand.NewTune(), clustercommand.Status(), clustercommand.Top(),
		clustercommand.Doctor(), clustercommand.Debug(), swarmCommand(), snapshotCommand(), natsCommand(),
		submitCommand(), jobCommand(), queueCommand(), cronCommand(), tenantCommand(), dlqCommand(), objectCommand(),
		agentCommand(), auditCommand(), initCommand(),
		authCommand(), tierCommand(), gpucommand.Command(connect.Submitting, connect.Flags),
	)
	checkFirst(cmd)
	completeNames(cmd)
	return cmd
}

// checkFirst makes every command check the value of -o before it connects: a wrong one must not
// change anything first. It is applied after all commands are added, and keeps a PreRunE that a
// command has.
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
