package main

import (
	"bytes"
	"fmt"
	"image/color"
	"image/gif"
	"image/png"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// lifeOfText makes generations of Life on a grid whose surroundings are dead.
func lifeOfText(alive map[[2]int]bool, width, height, generations int) map[[2]int]bool {
	for range generations {
		neighbours := map[[2]int]int{}
		for c := range alive {
			for i := range 9 {
				if i != 4 {
					neighbours[[2]int{c[0] + i%3 - 1, c[1] + i/3 - 1}]++
				}
			}
		}
		next := map[[2]int]bool{}
		for c, n := range neighbours {
			if c[0] >= 0 && c[0] < width && c[1] >= 0 && c[1] < height && (n == 3 || n == 2 && alive[c]) {
				next[c] = true
			}
		}
		alive = next
	}
	return alive
}

// TestGridOfProcesses: the gun of examples/life shoots as it does on paper, in pictures of real
// processes. The GPU agent is killed between two ticks.
func TestGridOfProcesses(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	const width, height = 120, 64
	c := &processes{bin: binaries(t)}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(c.bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", t.TempDir())
	data, dir := t.TempDir(), t.TempDir()
	start := func() {
		c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"), "--nats", c.url, "--data-dir",
			data, "--device", "host", "--lease-ttl", "1s")
	}
	start()
	run := func(args ...string) {
		t.Helper()
		cmd := osexec.CommandContext(t.Context(), filepath.Join(c.bin, "exoswarm"),
			append([]string{"swarm"}, append(args, "--nats", c.url, "--timeout", "5m")...)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		if _, err := cmd.Output(); err != nil {
			t.Fatalf("exoswarm swarm %s: %v\n%s", strings.Join(args, " "), err, errs.String())
		}
	}
	example := filepath.Join("..", "..", "examples", "life")
	gun, err := os.ReadFile(filepath.Join(example, "gun.csv"))
	if err != nil {
		t.Fatal(err)
	}
	want := map[[2]int]bool{}
	for line := range strings.Lines(string(gun)) {
		var id, state int
		if n, _ := fmt.Sscanf(line, "%d,%d", &id, &state); n == 2 {
			want[[2]int{id % width, id / width}] = state == 1
		}
	}
	run("create", "-f", filepath.Join(example, "swarm.yaml"))
	run("observe", "life", "--input", filepath.Join(example, "gun.csv"))
	same := func(at func(x, y int) color.Color, scale int) {
		t.Helper()
		for y := range height {
			for x := range width {
				r, _, _, _ := at(x*scale+scale-1, y*scale).RGBA()
				if (r < 0x8000) != want[[2]int{x, y}] {
					t.Fatalf("the agent in column %d of row %d differs", x, y)
				}
			}
		}
	}
	film := filepath.Join(dir, "life.gif")
	for round := range 3 {
		run("render", "life", "-o", film, "--ticks", "30", "--every", "15", "--scale", "1")
		text, err := os.ReadFile(film)
		if err != nil {
			t.Fatal(err)
		}
		all, err := gif.DecodeAll(bytes.NewReader(text))
		if err != nil || len(all.Image) != 3 {
			t.Fatalf("%d pictures, %v, want 3", len(all.Image), err)
		}
		for i, m := range all.Image {
			if i > 0 {
				want = lifeOfText(want, width, height, 15)
			}
			same(m.At, 1)
		}
		if n := len(want); n != 36+5*(round+1) {
			t.Errorf("%d agents are alive after %d ticks, want the gun and %d gliders", n, 30*(round+1), round+1)
		}
		c.gpu.end(t, syscall.SIGKILL)
		start()
	}
	picture := filepath.Join(dir, "life.png")
	run("render", "life", "-o", picture, "--ticks", "7", "--scale", "3")
	want = lifeOfText(want, width, height, 7)
	f, err := os.Open(picture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	same(m.At, 3)
}
