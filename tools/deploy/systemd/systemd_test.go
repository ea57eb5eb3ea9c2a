// Package systemd_test checks the units for systemd: by its own tools, and by starting them under a
// real systemd in namespaces of its own.
package systemd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/tools/deploy/programs"
)

// exposures are the units with the highest exposure that systemd-analyze may find, times ten.
var exposures = map[string]string{
	"exoswarm-nats.service":     "13",
	"exoswarm-cpuagent.service": "13",
	"exoswarm-gpuagent.service": "15",
	"exoswarm-ui.service":       "13",
	"exoswarm-serve.service":    "13",
}

// TestUnits: systemd finds no mistake in the units, and their exposure is within its bounds. With
// the drop-ins too.
func TestUnits(t *testing.T) {
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		programs.Missing(t, "no systemd-analyze: install the package systemd")
	}
	files, err := filepath.Glob("*.service")
	if err != nil {
		t.Fatal(err)
	}
	if all := slices.Sorted(maps.Keys(exposures)); !slices.Equal(files, all) {
		t.Fatalf("units %v, bounds for %v", files, all)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			// The programs are not installed on every machine, and verify requires them.
			text = regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/\w+`).
				ReplaceAll(text, []byte("ExecStart="+program))
			unit := filepath.Join(dir, name)
			if err := errors.Join(os.WriteFile(unit, text, 0o644), os.Mkdir(unit+".d", 0o755)); err != nil {
				t.Fatal(err)
			}
			for _, dropIn := range []string{"credentials.conf", "login-token.conf"} {
				text, err := os.ReadFile(dropIn)
				if err == nil {
					err = os.WriteFile(filepath.Join(unit+".d", dropIn), text, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			// verify exits with 0 also after an unknown key, so its output counts.
			if out, err := exec.Command("systemd-analyze", "verify", unit).CombinedOutput(); err != nil ||
				len(out) > 0 {
				t.Errorf("systemd-analyze verify: %v\n%s", err, out)
			}
			if out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager",
				"--threshold="+exposures[name], unit).CombinedOutput(); err != nil {
				t.Errorf("the exposure is above %s tenths: %v\n%s", exposures[name], err, out)
			}
		})
	}
}

// system is a systemd that runs in namespaces of its own.
type system struct {
	t   *testing.T
	pid int
	log *testkit.Log
}

type contents bool

const (
	bare      contents = false // nothing of Exoswarm
	installed contents = true  // the commands and the units
)

// startSystem starts a systemd with these units and files of /etc/exoswarm.
// It ends with the test, with all of its processes.
func startSystem(t *testing.T, units, etc map[string]string, with contents) *system {
	t.Helper()
	if os.Getuid() != 0 {
		programs.Missing(t, "a systemd of its own needs root")
	}
	for _, path := range []string{"/lib/systemd/systemd", "/usr/bin/nsenter", "/usr/bin/systemctl"} {
		if _, err := os.Stat(path); err != nil {
			programs.Missing(t, "no %s: install the packages systemd and util-linux", path)
		}
	}
	if _, err := exec.LookPath("ip"); err != nil {
		programs.Missing(t, "no ip: install the package iproute2")
	}
	programs.Namespaces(t)
	dir := t.TempDir()
	put := func(folder string, files map[string]string) string {
		for name, text := range files {
			path := filepath.Join(dir, folder, name)
			err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o600))
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, folder)
	}
	all := maps.Clone(units)
	commands := ""
	if with == installed {
		commands = programs.Dir(t)
	}
	for name := range exposures {
		if with == bare {
			break
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = string(text)
	}
	// The real targets would start what the machine starts.
	for _, name := range []string{
		"network-online.target", "multi-user.target", "sysinit.target", "basic.target",
		"shutdown.target",
	} {
		all[name] = "[Unit]\nDefaultDependencies=no\n"
	}
	group := fmt.Sprintf("exoswarm-test-%d", os.Getpid())
	s := &system{t: t, log: &testkit.Log{}}
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", innerUnits + "=" + put("units", all), innerEtc + "=" + put("etc", etc),
		innerCommands + "=" + commands, innerGroup + "=" + group,
	}
	cmd.Stdout, cmd.Stderr = s.log, s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC |
			syscall.CLONE_NEWUTS,
		Setsid: true,
	}
	if err := cmd.Start(); err != nil {
		programs.Missing(t, "no namespaces of its own: %v", err)
	}
	s.pid = cmd.Process.Pid
	t.Cleanup(func() {
		// The end of the first process of a namespace ends all others of it.
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for _, root := range controlGroups(group) {
			var dirs []string
			_ = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
				if err == nil && d.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			slices.Reverse(dirs)
			for _, path := range dirs {
				_ = os.Remove(path)
			}
		}
		if t.Failed() {
			t.Logf("the console of the system:\n%s", s.log)
		}
	})
	return s
}

func (s *system) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{
		"-t", fmt.Sprint(s.pid), "-m", "-p", "-n", "-i", "-u", "--",
	}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *system) property(unit, name string) string {
	out, err := s.run("systemctl", "show", "--value", "-p", name, unit)
	if err != nil {
		return "unknown: " + out
	}
	return strings.TrimSpace(out)
}

// until waits until a property of a unit matches, and fails the test if it does not.
func (s *system) until(unit, name, pattern string) {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	testkit.Until(s.t, fmt.Sprintf("%s of %s to match %s", name, unit, pattern), func() bool {
		return re.MatchString(s.property(unit, name))
	})
}

func (s *system) must(args ...string) {
	s.t.Helper()
	if out, err := s.run(append([]string{"systemctl"}, args...)...); err != nil {
		s.t.Fatalf("systemctl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestStart: under a real systemd the units start as users of their own and are active only when
// they serve. An agent without its server waits and says so, one that hangs is restarted, and wrong
// settings end a unit with the reason in its status instead of a loop.
func TestStart(t *testing.T) {
	testkit.OnlyLong(t)
	s := startSystem(t, map[string]string{
		"test.target": "[Unit]\nDefaultDependencies=no\nWants=exoswarm-nats.service exoswarm-cpuagent.service " +
			"exoswarm-gpuagent.service exoswarm-ui.service\n",
		"exoswarm-cpuagent.service.d/watchdog.conf": "[Service]\nWatchdogSec=3\nTimeoutAbortSec=1\nRestartSec=100ms\n",
		// The dashboard logs in with a file that is not there.
		"broken.service": "[Service]\nType=notify\nDynamicUser=yes\nExecStart=/usr/local/bin/exoswarm ui\n" +
			"LoadCredential=nats.creds:/etc/exoswarm/broken.creds\n",
	}, map[string]string{
		"gpuagent.env": "EXOSWARM_MEMORY=1GiB\n", "cpuagent.env": "EXOSWARM_LOG_LEVEL=debug\n",
	}, installed)
	units := []string{"exoswarm-nats", "exoswarm-cpuagent", "exoswarm-gpuagent", "exoswarm-ui"}
	for _, unit := range units {
		s.until(unit, "ActiveState", "^active$")
		if text := s.property(unit, "StatusText"); text != "serving" {
			t.Errorf("the status of %s is %q, want serving", unit, text)
		}
	}
	out, err := s.run("/usr/local/bin/exoswarm", "agent", "list", "-o", "json")
	for _, name := range []string{"cpuagent-", "gpuagent-"} {
		if err != nil || strings.Count(out, `"`+name) != 1 {
			t.Errorf("the agents are %s, error %v; want one %s", out, err, name)
		}
	}
	for _, line := range strings.Split(strings.TrimSpace(out), "\n") {
		var agent struct{ State string }
		if err := json.Unmarshal([]byte(line), &agent); err == nil && agent.State != "serving" {
			t.Errorf("an agent is not serving: %s", line)
		}
	}
	// Nothing runs as root, and the state is in a folder of its own.
	for _, unit := range units {
		uid, err := s.run("stat", "-c", "%u", "/proc/"+s.property(unit, "MainPID"))
		if err != nil || strings.TrimSpace(uid) == "0" {
			t.Errorf("%s runs as user %s, error %v; want one that is not root", unit, uid, err)
		}
	}
	if out, err := s.run("ls", "/var/lib/private/exoswarm"); err != nil || !strings.Contains(out, "gpuagent") {
		t.Errorf("the folders of state are %q, error %v", out, err)
	}

	// A process that hangs is killed by the watchdog, and a new one serves.
	before := s.property("exoswarm-cpuagent", "MainPID")
	if out, err := s.run("kill", "-STOP", before); err != nil {
		t.Fatalf("stop the CPU agent: %v\n%s", err, out)
	}
	s.until("exoswarm-cpuagent", "NRestarts", "^1$")
	s.until("exoswarm-cpuagent", "ActiveState", "^active$")
	if after := s.property("exoswarm-cpuagent", "MainPID"); after == before {
		t.Error("the process that hung is still there")
	}

	// Without its server a new agent waits, and serves as soon as there is one.
	s.must("stop", "exoswarm-nats", "exoswarm-cpuagent")
	if result := s.property("exoswarm-nats", "Result"); result != "success" {
		t.Errorf("the end of the server: %s, want success", result)
	}
	s.must("start", "--no-block", "exoswarm-cpuagent")
	s.until("exoswarm-cpuagent", "StatusText", "^waiting: .*127.0.0.1:4222")
	if state := s.property("exoswarm-cpuagent", "ActiveState"); state != "activating" {
		t.Errorf("an agent that waits is %s, want activating", state)
	}
	s.must("start", "exoswarm-nats")
	s.until("exoswarm-cpuagent", "ActiveState", "^active$")

	// A device that is not there, a folder that cannot be written, a wrong flag, and missing
	// credentials: the reason, and no loop.
	for _, c := range []struct{ unit, env, exit, status string }{
		{"exoswarm-gpuagent", "EXOSWARM_DEVICE=cuda:7", "2", "^failed: --device cuda:7: .*; there is host$"},
		{"exoswarm-gpuagent", "EXOSWARM_DATA_DIR=/usr", "2", "^failed: --data-dir: .* read-only file system$"},
		{"exoswarm-cpuagent", "EXOSWARM_CONCURRENCY=0", "2", "^failed: --concurrency 0: use 1 or more$"},
		{"exoswarm-ui", "NATS_CREDS=/etc/exoswarm/none", "", "^failed: .*/etc/exoswarm/none"},
		{
			"exoswarm-nats", "EXOSWARM_DATA_DIR=/usr", "2", "^failed: nats server: data folder /usr: this process " +
				"may not write there: give it the folder: .* read-only file system$",
		},
	} {
		unit := c.unit
		file := "/etc/exoswarm/" + strings.TrimPrefix(unit, "exoswarm-") + ".env"
		if out, err := s.run("sh", "-c", "echo '"+c.env+"' > "+file); err != nil {
			t.Fatalf("write %s: %v\n%s", file, err, out)
		}
		s.must("reset-failed", unit)
		if out, err := s.run("systemctl", "restart", unit); err == nil {
			t.Errorf("%s starts with %s\n%s", unit, c.env, out)
		}
		s.until(unit, "ActiveState", "^(failed|activating)$")
		if code := s.property(unit, "ExecMainStatus"); c.exit != "" && code != c.exit {
			t.Errorf("%s with %s: exit code %s, want %s", unit, c.env, code, c.exit)
		}
		s.until(unit, "StatusText", c.status)
		if c.exit == "2" {
			s.until(unit, "ActiveState", "^failed$")
		}
	}
	if out, err := s.run("systemctl", "start", "broken"); err == nil {
		t.Errorf("a unit without its credentials starts: %s", out)
	}
	if code := s.property("broken", "ExecMainStatus"); code != "243" {
		t.Errorf("a unit without its credentials ends with %s, want 243 (CREDENTIALS)", code)
	}

	// All in one process: it is active when the agents in it are, not when the first of them is.
	s.must("start", "exoswarm-serve")
	if text := s.property("exoswarm-serve", "StatusText"); text != "serving" {
		t.Errorf("the status of exoswarm-serve is %q, want serving", text)
	}
	out, err = s.run("/usr/local/bin/exoswarm", "agent", "list", "-o", "json")
	if err != nil || !strings.Contains(out, `"cpuagent"`) || !strings.Contains(out, `"gpuagent"`) {
		t.Errorf("the agents of exoswarm-serve are %s, error %v; want both", out, err)
	}
	s.must("stop", "exoswarm-serve")
	if result := s.property("exoswarm-serve", "Result"); result != "success" {
		t.Errorf("the end of exoswarm-serve: %s, want success", result)
	}
}
