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
	const files = 5
	rows := max(5000, 1500*most)
	for i := range files {
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
	want, err := os.ReadFile(undisturbed)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(want, []byte("\n")); n != files*rows {
		t.Fatalf("%d lines, want %d", n, files*rows)
	}
	c := &cluster{bin: bin}
	c.nats, c.url = startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0", "--data-dir", t.TempDir())
	c.startCPU(t)
	// On a machine so busy that this process sleeps through a run, the run proves nothing and is made again.
	for attempt, kills, resumed := 1, 0, 0; kills == 0 || resumed == 0; attempt++ {
		if attempt > 5 {
			t.Fatalf("no run of %d rows was killed and resumed", files*rows)
		}
		ended := make(chan error, 1)
		go func() { ended <- run(disturbed, "--nats", c.url) }()
		kills, resumed = c.killGPU(t, ended, most, r)
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		t.Logf("%d kills, %d times resumed from a checkpoint", kills, resumed)
		got, err := os.ReadFile(disturbed)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Fatal("the decisions differ from those of the undisturbed run")
		}
	}
}

// killGPU runs GPU agents on one data folder until a run has ended, and kills up to so many of them. It says how many, and
// how often one has gone on from a checkpoint.
func (c *cluster) killGPU(t *testing.T, ended chan error, most int, r *rand.Rand) (kills, resumed int) {
	t.Helper()
	data := t.TempDir()
	start := func() {
		c.gpu, _ = startProcess(t, "gpuagent is ready", filepath.Join(c.bin, "gpuagent"),
			"--nats", c.url, "--data-dir", data, "--device", "host", "--lease-ttl", "1s", "--log-level", "debug")
	}
	look := func() {
		log := c.gpu.log.String()
		if strings.Contains(log, "checkpoint not used") {
			t.Errorf("a checkpoint that kill -9 left was refused:\n%s", log)
		}
		resumed += strings.Count(log, "shard resumed from its checkpoint")
	}
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	start()
	for {
		select {
		case err := <-ended:
			ended <- err
			c.gpu.end(t, syscall.SIGTERM)
			look()
			return kills, resumed
		case <-tick.C:
		}
		if kills < most && strings.Contains(c.gpu.log.String(), "checkpoint stored") {
			time.Sleep(time.Duration(r.Int64N(int64(60 * time.Millisecond)))) // the moment of the kill, not a wait for anything
			c.gpu.end(t, syscall.SIGKILL)
			kills++
			look()
			start()
		}
	}
}
