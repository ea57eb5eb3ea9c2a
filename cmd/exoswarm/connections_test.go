package main

import (
	"encoding/hex"
	"fmt"
	"net/url"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestConnections runs a cluster in a network namespace of its own: agents talk to each other
// through NATS alone. No connection has two other ends than NATS and metrics, also none that is
// closed and in TIME_WAIT, nothing else listens, and nobody asks a name server.
func TestConnections(t *testing.T) {
	testkit.OnlyLong(t)
	if os.Getuid() != 0 {
		t.Skip("only root may make a network namespace")
	}
	if _, err := osexec.LookPath("ip"); err != nil {
		t.Skip("no command ip, which the gate installs")
	}
	space := fmt.Sprint("exoswarm-", os.Getpid())
	ip := func(args ...string) {
		t.Helper()
		if out, err := osexec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	ip("netns", "add", space)
	t.Cleanup(func() { ip("netns", "delete", space) })
	ip("-n", space, "link", "set", "lo", "up")
	bin, dir := binaries(t), t.TempDir()
	inside := func(name string, args ...string) []string {
		return append([]string{"netns", "exec", space, filepath.Join(bin, name)}, args...)
	}
	_, at := startProcess(t, `nats is ready.*url=(\S+)`, "ip",
		inside("exoswarm", "nats", "--port", "0", "--data-dir", filepath.Join(dir, "nats"))...)
	ports := []int{portOf(t, at)}
	agent := func(name string, args ...string) *process {
		t.Helper()
		args = append(args, "--nats", at, "--metrics", "127.0.0.1:0", "--data-dir", filepath.Join(dir, name))
		p, _ := startProcess(t, name+" is ready", "ip", inside(name, args...)...)
		m := regexp.MustCompile(`(http://[^" ]+)/metrics`).FindStringSubmatch(p.log.String())
		if m == nil {
			t.Fatalf("%s does not say where its metrics are:\n%s", name, p.log)
		}
		ports = append(ports, portOf(t, m[1]))
		return p
	}
	gpu := agent("gpuagent", "--device", "host")
	cpu := agent("cpuagent")
	spec := write(t, filepath.Join(dir, "swarm.yaml"), "name: test\nagents_per_group: 64\n")
	rows := write(t, filepath.Join(dir, "a.csv"), series(1, 2000))
	run := osexec.Command("ip", inside("exoswarm", "run", "-f", spec, "--input", rows, "--output",
		filepath.Join(dir, "out.ndjson"), "--progress", "none", "--nats", at)...)
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("run: %v\n%s", err, out)
	}
	seen := 0
	for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", gpu.cmd.Process.Pid, file))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n")[1:] {
			f := strings.Fields(line) // proc_net_tcp(5): slot, local address, remote address, state
			seen++
			if strings.HasPrefix(file, "udp") ||
				!slices.Contains(ports, hexPort(t, f[1])) && !slices.Contains(ports, hexPort(t, f[2])) {
				t.Errorf("%s: a socket from %s to %s in state %s, of neither NATS nor metrics", file, f[1], f[2], f[3])
			}
		}
	}
	if seen < 5 { // three listeners, and a connection of each agent
		t.Errorf("%d sockets are in the namespace: the test sees too little", seen)
	}
	for _, p := range []*process{cpu, gpu} {
		p.end(t, syscall.SIGTERM)
	}
}

// portOf returns the port of a URL.
func portOf(t *testing.T, text string) int {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(u.Port())
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return port
}

// hexPort returns the port of an address as in /proc/net/tcp.
func hexPort(t *testing.T, address string) int {
	t.Helper()
	_, text, _ := strings.Cut(address, ":")
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != 2 {
		t.Fatalf("address %q: %v", address, err)
	}
	return int(b[0])<<8 | int(b[1])
}
