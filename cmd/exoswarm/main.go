// Command exoswarm is the tool of users and operators: it runs swarms over files, in one process or
// on a cluster, creates swarms that last, submits jobs, and maintains the cluster.
//
// The packages below cmd/internal have its commands: run, swarm, cluster, queue and gpu. They
// declare flags, call the packages that do the work, and print. With -o json, jsonl or yaml a list
// has the items that the comments of the commands name; their fields are part of the interface.
// Messages for people go to stderr. Package command has the exit codes: 0, 1 for a failure, 2 for a
// wrong input or command line, 130 for an interruption.
//
// Commands print items as they come, so a list may end with an error after its first items. Commands
// that plan changes (init, auth init, object sweep) print the plan, and change nothing without --yes.
package main

import (
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cmd/internal/cluster"
	"github.com/exoswarm/exoswarm/cmd/internal/gpu"
	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
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
	cmd := command.Group("exoswarm", "Stateful neural agents for very many entities",
		run.Quickstart(), run.Command(), run.Detect(), run.Evaluate(), run.Report(), run.Tune(),
		serveprocess.Command(), serveprocess.UICommand(), serveprocess.MetricsCommand(),
		swarm.Specs(), swarm.Snapshots(),
		swarm.Command(cluster.Explain("explain NAME", "Tell why a swarm does not progress.", doctor.ExplainSwarm)),
		cluster.Status(), cluster.Top(), cluster.Doctor(), cluster.Debug(), cluster.Agents(), cluster.Tenants(),
		cluster.Audit(), cluster.Detectors(queue.JobLogs), cluster.NATS(), cluster.Init(), cluster.Auth(),
		cluster.Tiers(),
		queue.Job(cluster.Explain("explain ID", "Tell why a job does not progress.", doctor.ExplainJob)),
		queue.Submit(), queue.Queues(), queue.Cron(), queue.DeadLetters(), queue.Objects(),
		gpu.Command(),
	)
	cli.CheckOutput(cmd)
	return cmd
}
