package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestKilledWithCheckpoints kills the GPU agent of a cluster of real processes again and again, each time at a random moment
// behind a checkpoint of its own, and starts it with the same data folder: it goes on from the checkpoint, and the output is
// byte for byte that of an undisturbed run. EXOSWARM_KILLS is the number of kills, 4 by default; the seed is logged.
func TestKilledWithCheckpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	most := 4
	if text := os.Getenv("EXOSWARM_KILLS"); text != "" {
		var err error
		if most, err = strconv.Atoi(text); err != nil {
			t.Fatalf("EXOSWARM_KILLS: %v", err)
		}
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	bin, dir := binaries(t), t.TempDir()
	spec := write(t, filepath.Join(dir, "swarm.yaml"), "name: test\npage_size: 64KiB\ncheckpoint: {interval: 100ms, entries: 4}\n")
	rows := max(8000, 2000*most)
	for i := range 5 {
		write(t, filepath.Join(dir, "in", string(rune('a'+i))+".csv"), series(uint64(i), rows))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	run := func(out string, args ...string) error {
		args = append([]string{"run", "-f", spec, "--input", filepath.Join(dir, "in"), "--output", out, "--batch-rows", "256"}, args...)
		text, err := osexec.CommandContext(ctx, filepath.Join(bin, "exoswarm"), args...).CombinedOutput()
		if err != nil {
			t.Errorf("exoswarm run: %s", text)
		}
		return err
	}
	undisturbed, disturbed := filepath.Join(dir, "undisturbed.ndjson"), filepath.Join(dir, "disturbed.ndjson")
	if err := run(undisturbed); err != nil {
		t.Fatal(err)
	}
	c := &cluster{bin: bin}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0", "--data-dir", t.TempDir())
	data := t.TempDir()
	startGPU := func() {
		c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"),
			"--nats", c.url, "--data-dir", data, "--device", "host", "--lease-ttl", "1s", "--log-level", "debug")
	}
	startGPU()
	c.startCPU(t)
	ended := make(chan error, 1)
	go func() { ended <- run(disturbed, "--nats", c.url) }()

	kills, resumed := 0, 0
	over := func() bool { // behind the next checkpoint, or the end of the run
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !strings.Contains(c.gpu.log.String(), "checkpoint stored") {
			select {
			case err := <-ended:
				ended <- err
				return true
			case <-tick.C:
			}
		}
		return false
	}
	for kills < most && !over() {
		time.Sleep(time.Duration(r.Int64N(int64(200 * time.Millisecond)))) // the moment of the kill, not a wait for anything
		c.gpu.end(t, syscall.SIGKILL)
		kills++
		resumed += strings.Count(c.gpu.log.String(), "shard resumed from its checkpoint")
		if log := c.gpu.log.String(); strings.Contains(log, "checkpoint not used") {
			t.Errorf("a checkpoint that kill -9 left was refused:\n%s", log)
		}
		startGPU()
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	c.gpu.end(t, syscall.SIGTERM)
	resumed += strings.Count(c.gpu.log.String(), "shard resumed from its checkpoint")
	t.Logf("%d kills, %d times resumed from a checkpoint", kills, resumed)
	if kills == 0 || resumed == 0 {
		t.Errorf("the run of %d rows was over after %d kills and %d resumptions: it proves nothing", 5*rows, kills, resumed)
	}
	want, err := os.ReadFile(undisturbed)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(disturbed)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(want, []byte("\n")); n != 5*rows {
		t.Errorf("%d lines, want %d", n, 5*rows)
	}
	if !bytes.Equal(got, want) {
		t.Error("the decisions differ from those of the undisturbed run")
	}
}
