package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestFaultsNamed: while no browser watches, the first page names a GPU agent that is killed, a
// disk that is full and a server that ended on it within ten seconds, and is right again when the
// agent is back and the disk has room.
func TestFaultsNamed(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	bin, disk := binaries(t), mountedDisk(t, "tmpfs", 64, 0)
	_, url := startProcess(t, `nats is ready.*url=(\S+)`, filepath.Join(bin, "exoswarm"), "nats", "--port", "0",
		"--data-dir", disk)
	startGPU := func() *process {
		p, _ := startProcess(t, "gpuagent is ready", filepath.Join(bin, "gpuagent"), "--nats", url, "--name", "g1",
			"--device", "host", "--data-dir", t.TempDir())
		return p
	}
	gpu := startGPU()
	startProcess(t, "cpuagent is ready", filepath.Join(bin, "cpuagent"), "--nats", url)
	ui, logged := startProcess(t, `the dashboard is ready.*url="?([^"\s]+)`, filepath.Join(bin, "exoswarm"), "ui",
		"--nats", url, "--listen", "127.0.0.1:0")
	api, base := openDashboard(t, ui, logged)
	faults := func() (text string) {
		r, err := api.Get(base + "api/v1/state")
		if err != nil {
			t.Fatalf("ask the API: %v", err)
		}
		defer r.Body.Close()
		var s struct{ Faults []doctor.Fault }
		if err := json.NewDecoder(r.Body).Decode(&s); err != nil {
			t.Fatalf("the state: %v", err)
		}
		for _, f := range s.Faults {
			text += strings.Join(append(f.Details, f.Summary, f.Cure), ": ") + "\n"
		}
		return text
	}
	named := func(what string, words ...string) {
		t.Helper()
		began, text := time.Now(), ""
		testkit.Until(t, what, func() bool {
			text = faults()
			for _, w := range words {
				if !strings.Contains(text, w) {
					return false
				}
			}
			return true
		})
		took := time.Since(began)
		t.Logf("%s after %v: %q", what, took.Round(100*time.Millisecond), text)
		if took > 10*time.Second {
			t.Errorf("%s took %v, want at most 10 s", what, took)
		}
	}
	quiet := func(what string) {
		t.Helper()
		testkit.Until(t, what, func() bool { return faults() == "" })
	}
	quiet("a cluster without faults")
	letPass(t.Context(), 3*time.Second) // the agent has answered
	gpu.end(t, syscall.SIGKILL)
	named("the killed agent", "g1 since", "no GPU agent")
	startGPU()
	quiet("the agent is back")
	filler := filepath.Join(disk, "filler")
	leave(t, filler, 5<<20) // the server refuses to store below 8 MiB, and ends below 3
	named("the full disk", "its disk is nearly full", "make room on the disk")
	if err := os.Remove(filler); err != nil {
		t.Fatalf("os.Remove: %v", err)
	}
	quiet("the disk has room")
	leave(t, filler, 5<<20)
	named("the full disk again", "its disk is nearly full")
	leave(t, filler, 2<<20)
	named("the server that ended", "does not answer: its disk was nearly full",
		"make room on the disk of the server, and start it")
}
