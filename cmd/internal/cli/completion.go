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
	"github.com/exoswarm/exoswarm/jobs/swarms"
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

// SwarmNames returns the ids of all swarms, also of runs, and none when the cluster does not
// answer. An error has no place in a completion, so it gives no names.
var SwarmNames = ListNames(
	func(ctx context.Context, c *natsq.Conn) ([]swarms.Change, error) { return c.Swarms.Swarms(ctx) },
	func(s swarms.Change) string { return s.ID },
)

// mostCompleted bounds the ids of a completion.
const mostCompleted = 100

// JobIDs returns ids of jobs that are not over, also of runs, up to mostCompleted. A list that
// breaks off completes what it has.
func JobIDs(ctx context.Context, c *natsq.Conn) (ids []string) {
	for _, pool := range []jobs.Pool{jobs.PoolCPU, jobs.PoolGPU} {
		_ = c.Queue.List(ctx, pool, func(j queue.ListedJob) bool {
			ids = append(ids, j.ID)
			return len(ids) < mostCompleted
		})
	}
	return ids
}

// DeadIDs returns ids of dead letters, up to mostCompleted.
func DeadIDs(ctx context.Context, c *natsq.Conn) (ids []string) {
	_ = c.Letters.List(ctx, jobs.DeadFilter{}, func(d jobs.DeadLetter) bool {
		ids = append(ids, d.ID)
		return len(ids) < mostCompleted
	})
	return ids
}

// ListNames returns names for a list of things, by the name of each.
func ListNames[T any](list func(ctx context.Context, c *natsq.Conn) ([]T, error), name func(T) string) Names {
	return func(ctx context.Context, c *natsq.Conn) (names []string) {
		all, err := list(ctx, c)
		if err != nil {
			return nil
		}
		for _, v := range all {
			names = append(names, name(v))
		}
		return names
	}
}

// CompleteFlag completes the values of a flag.
func CompleteFlag(cmd *cobra.Command, flag string, n Names) {
	_ = cmd.RegisterFlagCompletionFunc(flag, // it fails for a flag that is not there
		func(cmd *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
			return n.complete(cmd, nil, text)
		})
}
