package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// tapped is a device that tells of the buffers that are large.
type tapped struct {
	device.Device
	mu    sync.Mutex
	large []device.Buffer
}

const largeBuffer = 2 << 20

func (d *tapped) Alloc(size int64, purpose string) (device.Buffer, error) {
	b, err := d.Device.Alloc(size, purpose)
	if err == nil && size >= largeBuffer {
		d.mu.Lock()
		d.large = append(d.large, b)
		d.mu.Unlock()
	}
	return b, err
}

// sumOf sums a metric over its labels.
func sumOf(t *testing.T, r *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatalf("r.Gather: %v", err)
	}
	for _, f := range all {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

// TestResidency: a swarm with residency: gpu stays on the device whatever others need, one that
// does not fit is refused with the numbers, and a page that has other bytes than it claims shows in
// the metrics and in the health, and is mended.
func TestResidency(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("writes to device memory that the agent reads at the same time, which the race detector reports: not " +
			"with -short")
	}
	s := jobstest.Start(t, server.Options{})
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL()})
	if err != nil {
		t.Fatalf("natsq.Connect: %v", err)
	}
	t.Cleanup(conn.Close)
	log := slog.New(slog.DiscardHandler)
	own, err := host.Open(host.Options{Logger: log, Requested: "host", Reason: "a test"})
	if err != nil {
		t.Fatalf("host.Open: %v", err)
	}
	t.Cleanup(func() { _ = own.Close() })
	dev, registry := &tapped{Device: own}, prometheus.NewRegistry()
	counts, err := gpuagents.NewMetrics(registry)
	if err != nil {
		t.Fatalf("gpuagents.NewMetrics: %v", err)
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "gpu", Device: dev, Queue: conn.Swarms, Logger: log, Metrics: counts, PageMemory: 8 << 20,
		HostPageMemory: 16 << 20, ResidencyCheck: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	t.Cleanup(func() { _ = drainIn30s(agent.Drain) })
	entry, err := conn.Registry.Announce(t.Context(), func() jobs.Agent {
		return jobs.Agent{
			Version: jobs.Version, Name: "gpu", Pool: jobs.PoolGPU, Room: agent.Room(), State: "serving",
			Started: time.Now().UTC(),
		}
	}, log)
	if err != nil {
		t.Fatalf("conn.Registry.Announce: %v", err)
	}
	t.Cleanup(func() { _ = drainIn30s(entry.Close) })
	text := func(name string, bytes int64, more string) string {
		of := func(agents int64) string {
			return fmt.Sprintf("name: %s\naddressed: agent\nagents: %d\nagents_per_group: 50\nfeatures: [a]\ncell: "+
				"{kind: leaky}\nvote: {rule: majority}\npage_size: 64KiB\n%s", name, agents, more)
		}
		for agents := int64(50_000); ; agents += 10_000 {
			spec, err := swarm.Parse("test.yaml", []byte(of(agents)))
			if err != nil {
				t.Fatalf("swarm.Parse test.yaml: %v", err)
			}
			if spec.PageBytes(spec.Groups()) >= bytes {
				return of(agents)
			}
		}
	}
	dir := t.TempDir()
	run := func(want int, args ...string) (stdout, stderr string) {
		t.Helper()
		return expect(t, want, append(args, "--nats", s.URL())...)
	}
	create := func(want int, name string, bytes int64, more string) string {
		t.Helper()
		_, stderr := run(want, "swarm", "create", "-f",
			write(t, filepath.Join(dir, name+".yaml"), text(name, bytes, more)))
		return stderr
	}
	const claims, violated = "exoswarm_swarm_residency_claims_total", "exoswarm_swarm_residency_violations_total"
	create(0, "vram", 3<<20, "residency: gpu\n")
	inputs := write(t, filepath.Join(dir, "inputs.csv"), "agent,a\n0,1.5\n1000,-0.25\n49999,3\n")
	run(0, "swarm", "observe", "vram", "--input", inputs)
	run(0, "swarm", "tick", "vram")
	// Three times what is left on the device: its pages come and go.
	create(0, "other", 12<<20, "")
	for range 3 {
		run(0, "swarm", "tick", "other", "--count", "2")
		run(0, "swarm", "tick", "vram")
	}
	if moves := sumOf(t, registry, "exoswarm_swarm_page_moves_total"); moves == 0 {
		t.Error("the other swarm has room for all its pages: the test tests nothing")
	}
	before := sumOf(t, registry, claims)
	testkit.Until(t, "a comparison of every page", func() bool { return sumOf(t, registry, claims) >= before+100 })
	if n, err := sumOf(t, registry, violated), agent.Residency(); n != 0 || err != nil {
		t.Fatalf("%v violations, %v", n, err)
	}
	if said := create(1, "large", 7<<20, "residency: gpu\n"); !strings.Contains(said, "residency: gpu keeps") ||
		!regexp.MustCompile(`needs 7\.\d+ MiB, and [\d.]+ \w+ are free|take 7\d{6} bytes; \d+ are free there`).
			MatchString(said) {
		t.Errorf("a swarm that does not fit: %s", said)
	}
	dev.mu.Lock()
	arena := dev.large[0]
	dev.mu.Unlock()
	if err := arena.Write(10<<16+4096, []byte("a bit flips, and others do")); err != nil {
		t.Fatalf("arena.Write: %v", err)
	}
	testkit.Until(t, "the violation", func() bool {
		return sumOf(t, registry, violated) > 0 && errors.Is(agent.Residency(), pages.ErrResidency)
	})
	testkit.Until(t, "the mended swarm", func() bool { return sumOf(t, registry, claims) > before+300 })
	if n := sumOf(t, registry, violated); n != 1 {
		t.Errorf("%v violations of one", n)
	}
	run(0, "swarm", "delete", "other", "--yes")
	testkit.Until(t, "the room of the other swarm", func() bool { return *agent.Room().Free > 4<<20 })
	// The mended swarm is what one is that nothing has happened to.
	create(0, "twin", 3<<20, "")
	run(0, "swarm", "observe", "twin", "--input", inputs)
	for range 4 {
		run(0, "swarm", "tick", "twin")
	}
	for i, agents := range []string{"0", "1000", "49999"} {
		got, _ := run(0, "swarm", "query", "vram", "--agents", agents, "-o", "json")
		want, _ := run(0, "swarm", "query", "twin", "--agents", agents, "-o", "json")
		if got != want {
			t.Errorf("agent %d: %s, its twin has %s", i, got, want)
		}
	}
}
