package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/internal/app/command"
	ops "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// maxTrace is the longest past that debug trace asks for. An agent keeps the last 4,096 spans of
// it.
const maxTrace = 10 * time.Minute

// writeTrace writes the trace of an agent into a new file, which it removes after an error.
func writeTrace(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	name, _ := cmd.Flags().GetString("output")
	last, _ := cmd.Flags().GetDuration("last")
	if last < time.Second || last > maxTrace {
		return command.Usage("--last %v: use 1s to %v", last, maxTrace)
	}
	t, err := ops.AskTimeline(cmd.Context(), c, args[0], int(last/time.Second))
	if err != nil {
		return err
	}
	records, err := c.Swarms.Swarms(cmd.Context())
	if err != nil {
		return err
	}
	for _, r := range records {
		if !r.Gone && r.Err == nil {
			t.Names[r.Swarm.Key()] = r.Swarm.Name
		}
	}
	data, err := json.Marshal(t.Trace())
	if err != nil {
		return fmt.Errorf("trace of agent %s: %w", args[0], err)
	}
	if name == "-" {
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\n", data)
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return command.Usage("--output: %v", err)
	}
	_, err = file.Write(data)
	if err = errors.Join(err, file.Close()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d spans of agent %s\n", name, len(t.Spans), args[0])
	return nil
}
