package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// resident returns the resident memory of a process in bytes.
func (p *process) resident(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.cmd.Process.Pid))
	if err != nil {
		t.Fatalf("os.ReadFile: %v", err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatalf("strconv.ParseInt: %v", err)
	}
	return pages * int64(os.Getpagesize())
}

// TestMemoryOfSwarms has a GPU agent of 1 GiB on the host device refuse swarms that it cannot hold,
// with the numbers, serve one that fits, and give its memory back.
func TestMemoryOfSwarms(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	const limit = 1 << 30
	bin, dir := binaries(t), t.TempDir()
	c := &processes{bin: bin, natsDir: t.TempDir()}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--fast", "--data-dir", c.natsDir)
	c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", c.url, "--device", "host",
		"--memory", "1GiB")
	create := func(name string, agents int64) (int, string) {
		file := write(t, filepath.Join(dir, name+".yaml"), fmt.Sprintf("name: %s\naddressed: agent\nagents: %d\n"+
			"agents_per_group: 50\nfeatures: [a]\ncell: {kind: leaky}\nvote: {rule: majority}\npage_size: 64KiB\n",
			name, agents))
		code, _, stderr := exec(t.Context(), t, "swarm", "create", "-f", file, "--nats", c.url)
		return code, stderr
	}
	before := c.gpu.resident(t)
	// As in review A7: 32 GiB and more.
	began := time.Now()
	code, said := create("large", 4294967200)
	if want := regexp.MustCompile(`swarm large does not fit: it needs [\d.]+ GiB .*the largest GPU agent can hold ` +
		`[\d.]+ [MG]iB`); code == 0 || !want.MatchString(said) {
		t.Fatalf("exit %d: %s; want %s", code, said, want)
	}
	t.Logf("refused after %v: %s", time.Since(began).Round(time.Millisecond), said)
	if code, said := create("first", 30_000_000); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	if code, _, said := exec(t.Context(), t, "swarm", "tick", "first", "--nats", c.url); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	full := c.gpu.resident(t)
	// What the agents say is enough; what the first has left is not.
	if code, said := create("second", 30_000_000); code == 0 || !strings.Contains(said, "too few on the device") &&
		!strings.Contains(said, "too few in host memory") {
		t.Fatalf("exit %d: %s", code, said)
	}
	if peak := c.gpu.peak(t); peak > limit {
		t.Errorf("the agent has taken %d MB", peak>>20)
	} else {
		t.Logf("%d MB before, %d MB with a swarm, at most %d MB", before>>20, full>>20, peak>>20)
	}
	if full < 300<<20 {
		t.Fatalf("the swarm takes %d MB: it is too small for this test", full>>20)
	}
	if code, _, said := exec(t.Context(), t, "swarm", "delete", "first", "--yes", "--nats", c.url); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
	began = time.Now()
	now := before
	testkit.Until(t, fmt.Sprintf("the memory of a deleted swarm, with %d MB before it", before>>20), func() bool {
		now = c.gpu.resident(t)
		return now < before+100<<20
	})
	t.Logf("%d MB %v after the swarm was deleted", now>>20, time.Since(began).Round(100*time.Millisecond))
	if code, said := create("second", 30_000_000); code != 0 {
		t.Fatalf("exit %d: %s", code, said)
	}
}
