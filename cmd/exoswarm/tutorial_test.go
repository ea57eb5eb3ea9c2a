package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var tutorialDevices = flag.Int("tutorial.devices", 500, "devices in TestTutorial, in place of the document's")

// TestTutorial executes the commands of docs/tutorial-operations.md as they are written there, with
// fewer devices and free ports.
func TestTutorial(t *testing.T) {
	testkit.OnlyLong(t)
	if _, err := osexec.LookPath("prometheus-alertmanager"); err != nil {
		t.Skip("prometheus-alertmanager is not installed: apt-get install prometheus-alertmanager")
	}
	repo, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(repo, "docs", "tutorial-operations.md"))
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for _, m := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		commands = append(commands, strings.TrimSpace(m[1]))
	}
	if len(commands) != 10 {
		t.Fatalf("the tutorial has %d commands, want 10", len(commands))
	}
	ports := fixedPorts(t, 3)
	dir, bin := t.TempDir(), binaries(t)
	// The program of the example is built once.
	example := filepath.Join(t.TempDir(), "operations")
	build := osexec.CommandContext(t.Context(), "go", "build", "-C", "examples", "-o", example, "./operations")
	build.Dir = repo
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	replace := strings.NewReplacer("go run -C examples ./operations", example, "10000", fmt.Sprint(*tutorialDevices),
		"4711", "47", "4222", fmt.Sprint(ports[0]), "8080", fmt.Sprint(ports[1]), "9093", fmt.Sprint(ports[2]))
	files, err := filepath.Glob(filepath.Join(repo, "examples", "operations", "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(dir, "examples", "operations", filepath.Base(f)), replace.Replace(string(data)))
	}
	nats := fmt.Sprint("nats://127.0.0.1:", ports[0])
	variables := os.Environ()
	shell := func(command string) *osexec.Cmd {
		cmd := osexec.Command("bash", "-c", command)
		cmd.Dir = dir
		cmd.Env = append(variables, "PATH="+bin+":"+os.Getenv("PATH"))
		return cmd
	}
	once := func(command string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := shell(command)
		defer context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		return string(out)
	}
	rows := uint64(*tutorialDevices) * 140
	for i, command := range commands {
		if i == 2 { // the commands find the cluster by this variable, as on port 4222 without it
			variables = append(variables, "EXOSWARM_NATS="+nats)
		}
		command = replace.Replace(command)
		if rest, background := strings.CutSuffix(command, " &"); background {
			log := &transcript{}
			cmd := shell("exec " + rest)
			cmd.Stdout, cmd.Stderr = log, log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				_ = cmd.Process.Signal(syscall.SIGTERM)
				_ = cmd.Wait()
				if t.Failed() {
					t.Logf("%s:\n%s", rest, log)
				}
			})
			letPass(t.Context(), 2*time.Second) // as a person types the next one
			continue
		}
		out := once(command)
		switch i + 1 {
		case 8:
			testkit.Until(t, "the decisions of the detector", func() bool {
				var d []detectors.Detector
				text := once("exoswarm detector show plant -o json")
				return json.Unmarshal([]byte(text), &d) == nil && len(d) == 1 && d[0].Counts != nil &&
					d[0].Counts.Decisions == rows
			})
		case 10:
			testkit.Until(t, "the alert", func() bool {
				if strings.Contains(out, `"device_id":"sensor-00047"`) && strings.Contains(out, `"detector":"plant"`) &&
					strings.Contains(out, `"feature":"temperature"`) && strings.Contains(out, `"site":"plant"`) {
					return true
				}
				out = once(command)
				return false
			})
		}
	}
}
