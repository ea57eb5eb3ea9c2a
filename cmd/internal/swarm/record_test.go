package swarm

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
)

// TestWatchFlags: what can be wrong with flags is refused before there is a connection.
func TestWatchFlags(t *testing.T) {
	checkPlans(t, watchVerb, watchPlanOf, map[string]string{
		"--agents 1 --ticks 1":          `swarm watch: -o "": name a file that ends with .arrow or .npy`,
		"-o a.csv --agents 1 --ticks 1": `swarm watch: -o "a.csv": name a file that ends with .arrow or .npy`,
		"-o a.npy --ticks 1":            "swarm watch: use one of --agents and --compute, as in --agents 0-99",
		"-o a.npy --agents 1 --compute x --ticks 1": "swarm watch: use one of --agents and --compute, as in " +
			"--agents 0-99",
		"-o a.npy --compute sum(x) --variables vote --ticks 1": "swarm watch: --variables are of --agents: name the " +
			"outputs in the text of --compute",
		"-o a.npy --agents 1": "swarm watch: use one of --ticks, which steps the swarm, and --for, which " +
			"does not",
		"-o a.npy --agents 1 --for 1s": "swarm watch: -o a.npy: a .npy file has a fixed number of frames: use " +
			"--ticks, or .arrow",
		"-o a.arrow --agents 1 --for 1ms":               "swarm watch: --for 1ms: use 10ms or more",
		"-o a.arrow --agents 1 --for 1s --every 2":      "swarm watch: --every is for --ticks: use --interval",
		"-o a.arrow --agents 1 --for 1s --interval 1ms": "swarm watch: --interval 1ms: use 10ms or more, with --for",
		"-o a.arrow --agents 1 --ticks 1 --interval 1s": "swarm watch: --interval 1s: use 10ms or more, with --for",
		"-o a.arrow --agents 1 --ticks 0":               "swarm watch: --ticks 0: use 1 or more",
		"-o a.arrow --agents 1 --ticks 5 --every 2":     "swarm watch: --ticks 5: use a multiple of --every, 2",
		"-o a.arrow --agents 1 --ticks 5 --every 0":     "swarm watch: --every 0: use 1 to 10000",
		"-o a.arrow --agents x --ticks 5": "swarm watch: --agents: " +
			`"x" is neither an id nor a range: write 1,5-9`,
		"-o a.arrow --agents 1 --ticks 6 --every 2":      "connected",
		"-o a.arrow --compute sum(x) --for 1s":           "connected",
		"-o a.npy --agents 1 --variables vote --ticks 3": "connected",
	})
}

// checkPlans checks what a verb says to command lines: an error of usage from planOf, or
// "connected".
func checkPlans[P any](t *testing.T, v cli.Verb, planOf func(*cobra.Command) (P, error), lines map[string]string) {
	t.Helper()
	for line, want := range lines {
		c := v.Command()
		c.RunE = func(cmd *cobra.Command, _ []string) error {
			if _, err := planOf(cmd); err != nil {
				return err
			}
			return errors.New("connected")
		}
		c.SetArgs(append([]string{"x"}, strings.Fields(line)...))
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.Execute(); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}
