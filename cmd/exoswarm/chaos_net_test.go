package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// chaosNetEnv is set in the process that runs within the namespaces of TestChaosPartition: what
// their names begin with.
const chaosNetEnv = "EXOSWARM_CHAOS_NET"

const chaosToken = "partitioned"

// TestChaosPartition: a leader that is cut off from everybody for 15 seconds loses no acknowledged
// job. Servers, workers and this test are in network namespaces of their own, on a bridge; a cut
// takes a server's link down.
func TestChaosPartition(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	if !*chaosAll {
		t.Skip("three minutes: only with -chaos.all")
	}
	if prefix := os.Getenv(chaosNetEnv); prefix != "" {
		partitioned(t, prefix)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	if _, err := osexec.LookPath("ip"); err != nil {
		t.Skip("no ip here")
	}
	prefix := fmt.Sprintf("exo%d", os.Getpid())
	hub := prefix + "h"
	ip := func(args ...string) {
		t.Helper()
		if out, err := osexec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	if out, err := osexec.CommandContext(t.Context(), "ip", "netns", "add", hub).CombinedOutput(); err != nil {
		t.Skipf("no network namespaces here: %s", out)
	}
	t.Cleanup(func() { ip("netns", "del", hub) })
	ip("-n", hub, "link", "set", "lo", "up")
	ip("-n", hub, "link", "add", "name", "bridge0", "type", "bridge")
	ip("-n", hub, "addr", "add", "10.213.77.1/24", "dev", "bridge0")
	ip("-n", hub, "link", "set", "bridge0", "up")
	for i := range 3 {
		ns := fmt.Sprint(prefix, i)
		ip("netns", "add", ns)
		t.Cleanup(func() { ip("netns", "del", ns) })
		ip("-n", hub, "link", "add", fmt.Sprint("v", i), "type", "veth", "peer", "name", "eth", "netns", ns)
		ip("-n", hub, "link", "set", fmt.Sprint("v", i), "master", "bridge0", "up")
		ip("-n", ns, "addr", "add", fmt.Sprintf("10.213.77.%d/24", i+2), "dev", "eth")
		ip("-n", ns, "link", "set", "eth", "up")
		ip("-n", ns, "link", "set", "lo", "up")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("os.Executable: %v", err)
	}
	inside := osexec.CommandContext(t.Context(), "ip",
		append([]string{
			"netns", "exec", hub, self, "-test.v", "-test.run", "^TestChaosPartition$", "-test.timeout",
			"20m",
		},
			fmt.Sprint("-chaos.faults=", *chaosFaults), fmt.Sprint("-chaos.rate=", *chaosRate),
			fmt.Sprint("-chaos.seed=", *chaosSeed), "-chaos.all")...)
	inside.Env = append(os.Environ(), chaosNetEnv+"="+prefix)
	out, err := inside.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("the test inside the network has failed: %v", err)
	}
}

func partitioned(t *testing.T, prefix string) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte(chaosToken), 0o600); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
	c := startChaos(t, binaries(t), chaosOptions{
		servers: 3, workers: 2, args: []string{"--token-file", token}, token: chaosToken,
		hosts:  []string{"10.213.77.2", "10.213.77.3", "10.213.77.4"},
		within: func(i int) []string { return []string{"ip", "netns", "exec", fmt.Sprint(prefix, i)} },
	})
	link := func(i int, to string) {
		if out, err := osexec.Command("ip", "link", "set", fmt.Sprint("v", i), to).CombinedOutput(); err != nil {
			t.Fatalf("link %d %s: %v: %s", i, to, err, out)
		}
	}
	c.run(t, fault{"leader cut off for 15 s", false, false, func(c *chaosCluster, _ *rand.Rand) {
		i := c.leader()
		link(i, "down")
		letPass(t.Context(), 15*time.Second) // the fault itself
		link(i, "up")
	}})
}
