package swarmcommand

import (
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
)

// TestFlags: what can be wrong with flags is refused before there is a connection.
func TestRenderFlags(t *testing.T) {
	errConnected := errors.New("connected")
	for line, want := range map[string]string{
		"":                             `swarm render: -o "": name a file that ends with .png, .gif or .svg`,
		"-o a.jpg":                     `swarm render: -o "a.jpg": name a file that ends with .png, .gif or .svg`,
		"-o a.png --every 2":           "swarm render: -o a.png: --every and --rate are for a .gif: leave them out",
		"-o a.png --rate 2":            "swarm render: -o a.png: --every and --rate are for a .gif: leave them out",
		"-o a.png --ticks -1":          "swarm render: --ticks -1: use 0 or more",
		"-o a.gif --every 0":           "swarm render: --every 0: use 1 to 10000",
		"-o a.gif --ticks 5 --every 2": "swarm render: --ticks 5: use a multiple of --every, 2",
		"-o a.gif --scale 65":          "swarm render: --scale 65: use 1 to 64",
		"-o a.gif --rate 51":           "swarm render: --rate 51: use 1 to 50",
		"-o a.svg": "swarm render: -o a.svg: --ticks 0: a chart has 1 to 10000 points, one " +
			"for each " +
			"--every of them",
		"-o a.svg --ticks 9 --scale 2":     "swarm render: -o a.svg: --scale is for pictures: leave it out",
		"-o a.svg --ticks 9 --every 3":     "connected",
		"-o a.GIF --ticks 4 --every 2":     "connected",
		"-o a.png --x 1 --y 2 --width 100": "connected",
	} {
		c := NewRender(func(func(*cobra.Command, *swarmclient.Swarm) error) func(*cobra.Command, []string) error {
			return func(*cobra.Command, []string) error { return errConnected }
		})
		c.SetArgs(append([]string{"x"}, strings.Fields(line)...))
		c.SilenceErrors, c.SilenceUsage = true, true
		if err := c.Execute(); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
}
