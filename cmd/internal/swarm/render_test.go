package swarm

import "testing"

// TestRenderFlags: what can be wrong with flags is refused before there is a connection.
func TestRenderFlags(t *testing.T) {
	checkPlans(t, renderVerb, renderPlanOf, map[string]string{
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
			"for each --every of them",
		"-o a.svg --ticks 9 --scale 2":     "swarm render: -o a.svg: --scale is for pictures: leave it out",
		"-o a.svg --ticks 9 --every 3":     "connected",
		"-o a.GIF --ticks 4 --every 2":     "connected",
		"-o a.png --x 1 --y 2 --width 100": "connected",
	})
}
