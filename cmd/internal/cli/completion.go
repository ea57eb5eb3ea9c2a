package cli

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

// Names returns the names that complete the first argument of a command. It asks the cluster of the
// flags, and returns none when the cluster does not answer at once.
type Names func(ctx context.Context, c *natsq.Conn) []string

// complete is the ValidArgsFunction of a command. It prints nothing to stderr: the shell would show
// it in the middle of the line.
func (n Names) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	// Completions run without PersistentPreRun of the command, so the environment variables of the
	// flags are read here.
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
	return n(ctx, c), cobra.ShellCompDirectiveNoFileComp
}

// SwarmNames returns the ids of all swarms, and none when the cluster does not answer. An error has
// no place in a completion, so it gives no names.
func SwarmNames(ctx context.Context, c *natsq.Conn) (names []string) {
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

// JobIDs returns ids of jobs of the CPU pool that are not over, up to mostCompleted. A list that
// breaks off completes what it has.
func JobIDs(ctx context.Context, c *natsq.Conn) (ids []string) {
	_ = c.Queue.List(ctx, jobs.PoolCPU, func(j queue.ListedJob) bool {
		ids = append(ids, j.ID)
		return len(ids) < mostCompleted
	})
	return ids
}
