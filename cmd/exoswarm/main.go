// Command exoswarm is the tool of users and operators: it runs swarms over files, in one process or
// on a cluster, creates swarms that last, submits jobs, and maintains the cluster.
//
// The packages below cmd/internal have its commands: run, swarm, chat, cluster, queue and gpu. They
// declare flags, call the packages that do the work, and print. With -o json, jsonl or yaml a list
// has the items that the comments of the commands name; their fields are part of the interface.
// Messages for people go to stderr. Package command has the exit codes: 0, 1 for a failure, 2 for a
// wrong input or command line, 130 for an interruption.
//
// Commands print items as they come, so a list may end with an error after its first items.
// Commands that plan changes (init, auth init, object sweep) print the plan, and change nothing
// without --yes.
package main

import (
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/chat"
	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cmd/internal/cluster"
	"github.com/exoswarm/exoswarm/cmd/internal/gpu"
	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/cmd/internal/queue"
	"github.com/exoswarm/exoswarm/cmd/internal/run"
	"github.com/exoswarm/exoswarm/cmd/internal/serveprocess"
	"github.com/exoswarm/exoswarm/cmd/internal/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
)

func main() {
	gpuprocess.KernelMain() // a process of serve for kernels of jobs
	command.Main(root())
}

// root returns the command with all its sub-commands.
func root() *cobra.Command {
	cmd := command.Group("exoswarm", "Find anomalies in event streams, simulate neural agents, run jobs on a cluster")
	command.Section(cmd, "Start", run.Quickstart(), serveprocess.Command())
	command.Section(cmd, "Detect", run.Command(), run.Detect(cluster.Detectors(queue.JobLogs)), swarm.Specs(),
		run.Evaluate(), run.Tune(), run.Report())
	command.Section(cmd, "Simulate",
		swarm.Command(cluster.Explain("explain NAME", "Tell why a swarm does not progress", doctor.ExplainSwarm)),
		swarm.Snapshots(), models.Command(chat.Run()), chat.Command(), gpu.Train())
	command.Section(cmd, "Jobs", queue.Submit(),
		queue.Job(cluster.Explain("explain ID", "Tell why a job does not progress", doctor.ExplainJob)),
		queue.Queues(), queue.Cron(), queue.DeadLetters(), queue.Objects(), gpu.Command())
	command.Section(cmd, "Operate", cluster.Status(), cluster.Top(), cluster.Doctor(), serveprocess.UICommand(),
		serveprocess.MetricsCommand(), cluster.Debug(), cluster.Agents(), cluster.Tenants(), cluster.Audit())
	command.Section(cmd, "Maintain", cluster.NATS(), cluster.Init(), cluster.Auth(), cluster.Tiers())
	cli.CheckOutput(cmd)
	return cmd
}
