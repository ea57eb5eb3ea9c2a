package gpuprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
)

// named is a host device with another name.
type named struct {
	*faults.Device
	name string
}

func (n named) Properties() device.Properties {
	p := n.Device.Properties()
	p.Name = n.name
	return p
}

// several is an agent on several devices whose calls fail.
type several struct {
	*rig
	clock
	agent   *gpuagents.Agent
	reg     *prometheus.Registry
	devices []named
}

// pageBytes is what the pages of a swarm of text take, which has two.
const pageBytes = 2 * 64 << 10

// newSeveral starts an agent on devices with room for a number of pages each.
func newSeveral(tb testing.TB, pages ...int64) *several {
	tb.Helper()
	s := &several{rig: newRig(tb), reg: prometheus.NewRegistry()}
	counts, err := gpuagents.NewMetrics(s.reg)
	if err != nil {
		tb.Fatalf("gpuagents.NewMetrics: %v", err)
	}
	var own []pool.Accelerator
	for i, n := range pages {
		d := named{hostDevice(tb), fmt.Sprintf("gpu%d", i)}
		s.devices = append(s.devices, d)
		own = append(own, pool.Accelerator{
			Device: d, PageMemory: n * pageBytes,
			Open: func(ctx context.Context) (device.Device, error) {
				d, err := cuda.Open(ctx, "host", cuda.Options{})
				return named{faults.New(d), fmt.Sprintf("gpu%d", i)}, err
			},
		})
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "several", Device: own[0].Device, Open: own[0].Open, PageMemory: own[0].PageMemory, Others: own[1:],
		HostPageMemory: 64 << 20,
		Queue:          s.conn.Swarms, LeaseTTL: time.Minute, Checkpoints: checkpointsIn(tb.TempDir()), Metrics: counts,
		Patience: s.patience(),
		Logger:   slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
	if err != nil {
		tb.Fatalf("gpuagents.Start: %v", err)
	}
	s.agent = agent
	tb.Cleanup(func() {
		s.agent.Stop()
		for _, d := range s.devices {
			if err := d.Close(); err != nil {
				tb.Errorf("%s: %v", d.name, err)
			}
			if h := d.Health(context.Background()); h.InUse != 0 {
				tb.Errorf("%s: %d bytes in use", d.name, h.InUse)
			}
		}
	})
	return s
}

// served is on which devices a swarm was served, in order.
func (s *several) served(swarm string) (on []string) {
	for _, line := range strings.Split(s.String(), "\n") {
		if strings.Contains(line, "serving shard") && strings.Contains(line, "swarm="+swarm+" ") {
			_, rest, _ := strings.Cut(line, " device=")
			name, _, _ := strings.Cut(rest, " ")
			on = append(on, name)
		}
	}
	return on
}

// labelled is a metric of one device.
func (s *several) labelled(tb testing.TB, metric, device string) float64 {
	tb.Helper()
	all, err := s.reg.Gather()
	if err != nil {
		tb.Fatalf("s.reg.Gather: %v", err)
	}
	sum := 0.0
	for _, f := range all {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if f.GetName() == metric && l.GetName() == "device" && l.GetValue() == device {
					sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
				}
			}
		}
	}
	return sum
}

// same: a swarm has answered with these bytes, each entry once.
func (s *several) same(tb testing.TB, swarm string, want [][]byte) {
	tb.Helper()
	s.answered(tb, swarm, len(want))
	for i, got := range s.decisions(tb, swarm, 1, len(want)) {
		if !bytes.Equal(got, want[i]) {
			tb.Errorf("%s: answer %d differs from an undisturbed run", swarm, i+1)
		}
	}
}

// TestFleet: shards that come at once spread over the devices by their room, and answer as on one.
func TestFleet(t *testing.T) {
	t.Parallel()
	const n = 6
	want, all := undisturbed(t, n), observations(n, 7)
	s := newSeveral(t, 3, 5, 3)
	var ids []string
	for i := range 8 {
		ids = append(ids, fmt.Sprintf("swarm%d", i))
		s.announce(t, ids[i], text(1, 4), all)
	}
	count := map[string]int{}
	for _, id := range ids {
		s.same(t, id, want)
		on := s.served(id)
		if len(on) != 1 {
			t.Fatalf("%s was served on %v", id, on)
		}
		count[on[0]]++
	}
	if count["gpu0"] != 2 || count["gpu1"] != 4 || count["gpu2"] != 2 {
		t.Errorf("shards by device: %v", count)
	}
	if s.agent.Shards() != 8 || len(s.agent.Devices()) != 3 || s.agent.Level() != pool.Normal ||
		s.agent.Health() != nil {
		t.Errorf("%d shards on %d devices, level %v, health %v", s.agent.Shards(), len(s.agent.Devices()),
			s.agent.Levels(), s.agent.Health())
	}
}

// TestFleetFailure: the shard of a device that fails goes to the other one and answers as if
// nothing had been; the other's own shard is not disturbed; a device that mends gets the next
// shard.
func TestFleetFailure(t *testing.T) {
	t.Parallel()
	const n = 20
	want, all := undisturbed(t, n), observations(n, 7)
	s := newSeveral(t, 4, 4)
	for i, id := range []string{"first", "second"} {
		s.announce(t, id, text(1, 4), all[:5])
		s.answered(t, id, 5)
		if on := s.served(id); len(on) != 1 || on[0] != s.devices[i].name {
			t.Fatalf("%s is served on %v", id, on)
		}
	}
	s.devices[0].Fail(faults.Launch, 0, 1<<30, device.ErrTransient)
	s.append(t, "first", 5, all[5:])
	s.append(t, "second", 5, all[5:])
	s.same(t, "first", want)
	s.same(t, "second", want)
	if on := s.served("second"); len(on) != 1 {
		t.Errorf("the other device's shard was served on %v", on)
	}
	if on := s.served("first"); on[len(on)-1] != "gpu1" {
		t.Errorf("the shard was served on %v", on)
	}
	levels := s.agent.Levels()
	if levels[0] != pool.OnHost || levels[1] != pool.Normal || s.agent.Level() != levels[0] || s.agent.Health() != nil {
		t.Errorf("levels %v, health %v", levels, s.agent.Health())
	}
	var p atomic.Pointer[gpuagents.Agent]
	p.Store(s.agent)
	if err := healthy(s.agent.Devices, &p)(t.Context()); err != nil {
		t.Errorf("/healthz: %v", err)
	}
	if a, b := s.labelled(t, "exoswarm_gpuagent_level", "gpu0"),
		s.labelled(t, "exoswarm_gpuagent_level", "gpu1"); a != 2 || b != 0 {
		t.Errorf("levels %v and %v are measured", a, b)
	}
	if a, b := s.labelled(t, "exoswarm_gpuagent_device_errors_total", "gpu0"),
		s.labelled(t, "exoswarm_gpuagent_device_errors_total", "gpu1"); a < 5 || b != 0 {
		t.Errorf("%v and %v failures are measured", a, b)
	}
	s.devices[0].Heal()
	s.wait(t, "both devices", func() bool {
		s.passed.Add(int64(30 * time.Second))
		return s.agent.Level() == pool.Normal
	})
	s.announce(t, "third", text(1, 4), all)
	s.same(t, "third", want)
	if on := s.served("third"); len(on) != 1 || on[0] != "gpu0" {
		t.Errorf("the next shard is served on %v", on)
	}
}

// TestFleetRebuild: a device that breaks is opened anew, and the other one knows nothing of it.
func TestFleetRebuild(t *testing.T) {
	const n = 12
	want, all := undisturbed(t, n), observations(n, 7)
	s := newSeveral(t, 4, 4)
	for _, id := range []string{"first", "second"} {
		s.announce(t, id, text(1, 4), all[:5])
		s.answered(t, id, 5)
	}
	s.devices[0].Fail(faults.Launch, 0, 1, device.ErrSticky)
	s.append(t, "first", 5, all[5:])
	s.append(t, "second", 5, all[5:])
	s.same(t, "first", want)
	s.same(t, "second", want)
	if on := s.served("second"); len(on) != 1 {
		t.Errorf("the other device's shard was served on %v", on)
	}
	if levels := s.agent.Levels(); levels[0] != pool.Reduced || levels[1] != pool.Normal {
		t.Errorf("levels %v", levels)
	}
	if b := s.labelled(t, "exoswarm_gpuagent_device_rebuilds_total", "gpu1"); b != 0 {
		t.Errorf("the sound device was opened anew %v times", b)
	}
}

// TestFleetEmergency: when every device is in an emergency, the agent says which, and gives all
// shards to another.
func TestFleetEmergency(t *testing.T) {
	t.Parallel()
	const n = 10
	want, all := undisturbed(t, n), observations(n, 7)
	s := newSeveral(t, 4, 4)
	ids := []string{"a", "b", "c", "d"}
	for _, id := range ids {
		s.announce(t, id, text(1, 4), all[:5])
		s.answered(t, id, 5)
	}
	for _, d := range s.devices {
		d.Fail(faults.Launch, 0, 1<<30, device.ErrTransient)
	}
	for _, id := range ids {
		s.append(t, id, 5, all[5:])
	}
	s.wait(t, "emergencies", func() bool { return s.agent.Health() != nil })
	var p atomic.Pointer[gpuagents.Agent]
	p.Store(s.agent)
	if err := healthy(s.agent.Devices, &p)(t.Context()); !errors.Is(err, pool.ErrEmergency) ||
		!strings.Contains(err.Error(), "gpu0: ") || !strings.Contains(err.Error(), "gpu1: ") {
		t.Errorf("/healthz: %v", err)
	}
	s.wait(t, "the shards given back", func() bool { return s.agent.Shards() == 0 })
	s.start(t, gpuagents.Options{})
	for _, id := range ids {
		s.same(t, id, want)
	}
}

// TestDeviceList: what --device may say, and the sentence about what it may not.
func TestDeviceList(t *testing.T) {
	for list, want := range map[string]string{
		"host,host":           "host stands there twice",
		"cuda:1,cuda:0,cuda":  "cuda:0 stands there twice",
		"cuda:2, cuda:2":      "cuda:2 stands there twice",
		"all,host":            "all stands alone",
		"host,auto":           "auto stands alone",
		"":                    "a name is missing",
		"cuda:0,":             "a name is missing",
		"gpu":                 "a device is host",
		"host,cuda:-1":        "a device is host",
		"host,cuda:0,nothing": "", // which of the two comes first depends on the machine
	} {
		all, err := openDevices(t.Context(), list, false, cuda.Options{Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), want) || all != nil {
			t.Errorf("%q: %v, %d devices", list, err, len(all))
		}
	}
	for _, list := range []string{"host", "auto", " host "} {
		all, err := openDevices(t.Context(), list, false, cuda.Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil || len(all) != 1 {
			t.Fatalf("%q: %v", list, err)
		}
		if got := models(all); got != all[0].Properties().Model {
			t.Errorf("the registry says %q", got)
		}
		if err := closeDevices(all); err != nil {
			t.Errorf("closeDevices: %v", err)
		}
	}
	d := hostDevice(t)
	defer d.Close()
	two := []device.Device{named{d, "cuda:0"}, named{d, "cuda:1"}}
	if got, want := models(two), d.Properties().Model+" (cuda:0, cuda:1)"; got != want {
		t.Errorf("the registry says %q, want %q", got, want)
	}
	names := []string{"cuda:0", "cuda:1", "cuda:2"}
	if got := levels(names, []pool.Level{
		pool.Reduced, pool.Normal,
		pool.Emergency,
	}); got != "reduced (cuda:0), emergency (cuda:2)" {
		t.Errorf("the registry says %q", got)
	}
	if got := levels(names[:1], []pool.Level{pool.OnHost}); got != "host" {
		t.Errorf("the registry says %q", got)
	}
}
