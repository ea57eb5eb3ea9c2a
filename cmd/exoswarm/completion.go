package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// completionTime bounds the request of a completion, for which the shell waits. A server that is
// slower gives no completion.
const completionTime = time.Second

// completeNames adds completions to the commands that take the name of a swarm or the id of a job.
// They ask the cluster of the flags, and complete nothing when it does not answer at once. A
// command that root does not have is left out. root calls it once, after all commands are added. A
// completion prints nothing to stderr: the shell would show it in the middle of the line.
func completeNames(root *cobra.Command) {
	names := func(path []string, list func(ctx context.Context, c *natsq.Conn) []string) {
		cmd, _, err := root.Find(path)
		if err != nil {
			return
		}
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			// Only the first argument is a name. Completions run without PersistentPreRun of the
			// command, so the environment variables of the flags are read here.
			if len(args) > 0 || command.Environment(cmd.Flags()) != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
			defer cancel()
			url, login := command.NATS(cmd)
			c, err := natsq.Connect(ctx, natsconn.Options{URL: url, Login: login, Name: "exoswarm completion"})
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			defer c.Close()
			return list(ctx, c), cobra.ShellCompDirectiveNoFileComp
		}
	}
	for _, name := range []string{
		"get", "explain", "tick", "observe", "query", "state", "vote", "fuse", "compute", "snapshot", "trim", "reset",
		"delete",
	} {
		names([]string{"swarm", name}, swarmNames)
	}
	for _, name := range []string{"get", "explain", "watch", "logs", "cancel", "retry", "output"} {
		names([]string{"job", name}, jobIDs)
	}
}

// swarmNames returns the ids of all swarms, and none when the cluster does not answer. An error has
// no place in a completion, so it gives no names.
func swarmNames(ctx context.Context, c *natsq.Conn) (names []string) {
	all, err := c.Swarms.Swarms(ctx)
	if err != nil {
		return nil
	}
	for _, s := range all {
		names = append(names, s.ID)
	}
	return names
}

// mostCompleted bounds the ids of a completion.
const mostCompleted = 100

// jobIDs returns ids of jobs of the CPU pool that are not over, up to mostCompleted. A list that
// breaks off completes what it has.
func jobIDs(ctx context.Context, c *natsq.Conn) (ids []string) {
	_ = c.Queue.List(ctx, jobs.PoolCPU, func(j queue.ListedJob) bool {
		ids = append(ids, j.ID)
		return len(ids) < mostCompleted
	})
	return ids
}
