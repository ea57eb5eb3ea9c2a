package gpuprocess

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// sick is an agent on devices whose calls fail, with its checkpoints in a folder.
type sick struct {
	*rig
	clock
	agent   *gpuagents.Agent
	reg     *prometheus.Registry
	mu      sync.Mutex
	devices []*faults.Device // in the order in which they were opened
	refuse  error            // why none can be opened now
	hosts   atomic.Int32     // how often the host was opened
}

// clock stands still but for what tests add.
type clock struct{ passed atomic.Int64 }

// patience is the default one by this clock.
func (c *clock) patience() pool.Patience {
	return pool.Patience{Probe: 5 * time.Millisecond, Now: func() time.Time { return time.Unix(0, c.passed.Load()) }}
}

// quiet waits for a level while quiet times pass.
func (s *sick) quiet(tb testing.TB, want pool.Level) {
	tb.Helper()
	s.wait(tb, "level "+want.String(), func() bool {
		s.passed.Add(int64(30 * time.Second))
		return s.agent.Level() == want
	})
}

func hostDevice(tb testing.TB) *faults.Device {
	tb.Helper()
	d, err := cuda.Open(tb.Context(), "host", cuda.Options{})
	if err != nil {
		tb.Fatalf("cuda.Open host: %v", err)
	}
	return faults.New(d)
}

func newSick(tb testing.TB) *sick {
	tb.Helper()
	s := &sick{rig: newRig(tb), reg: prometheus.NewRegistry(), devices: []*faults.Device{hostDevice(tb)}}
	counts, err := gpuagents.NewMetrics(s.reg)
	if err != nil {
		tb.Fatalf("gpuagents.NewMetrics: %v", err)
	}
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "agent", Device: s.devices[0], Queue: s.conn.Swarms, LeaseTTL: time.Minute,
		Checkpoints: checkpointsIn(tb.TempDir()), Metrics: counts, Patience: s.patience(),
		PageMemory: 64 << 20, HostPageMemory: 64 << 20,
		Logger: slog.New(slog.NewTextHandler(s, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Open: func(context.Context) (device.Device, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.refuse != nil {
				return nil, s.refuse
			}
			d, err := cuda.Open(context.Background(), "host", cuda.Options{})
			if err != nil {
				return nil, err
			}
			s.devices = append(s.devices, faults.New(d))
			return s.devices[len(s.devices)-1], nil
		},
		OpenHost: func(ctx context.Context) (device.Device, error) {
			s.hosts.Add(1)
			return cuda.Open(ctx, "host", cuda.Options{})
		},
	})
	if err != nil {
		tb.Fatalf("gpuagents.Start: %v", err)
	}
	s.agent = agent
	tb.Cleanup(func() {
		s.agent.Stop()
		for i, d := range s.devices {
			if err := d.Close(); err != nil { // the devices that the agent opened are closed
				tb.Errorf("device %d: %v", i, err)
			}
			if h := d.Health(context.Background()); h.InUse != 0 {
				tb.Errorf("device %d: %d bytes in use", i, h.InUse)
			}
		}
	})
	return s
}

// current is the device that was opened last.
func (s *sick) current() *faults.Device {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.devices[len(s.devices)-1]
}

func (s *sick) setRefuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuse = err
}

func (s *sick) level(tb testing.TB, want pool.Level) {
	tb.Helper()
	s.wait(tb, "level "+want.String(), func() bool { return s.agent.Level() == want })
}

// undisturbed is what an agent on a sound device answers.
func undisturbed(tb testing.TB, n int) [][]byte {
	tb.Helper()
	r := newRig(tb)
	r.announce(tb, "x", text(1, 4), observations(n, 7))
	r.agent(tb, "")
	r.answered(tb, "x", n)
	return r.decisions(tb, "x", 1, n)
}

// same: a swarm has answered n entries, each once and with these bytes.
func (s *sick) same(tb testing.TB, want [][]byte) {
	tb.Helper()
	s.answered(tb, "x", len(want))
	for i, got := range s.decisions(tb, "x", 1, len(want)) {
		if !bytes.Equal(got, want[i]) {
			tb.Errorf("answer %d differs from an undisturbed run", i+1)
		}
	}
	if last, err := s.conn.Swarms.Log("x", 0, swarms.Out).Last(tb.Context()); err != nil ||
		last.Seq != uint64(len(want)) {
		tb.Errorf("%d answers: %v", last.Seq, err)
	}
}

// TestFaults: an agent whose device fails in one call of each kind and class answers as one whose
// device does not, on the device that it has or the next one.
func TestFaults(t *testing.T) {
	const n = 24
	want := undisturbed(t, n)
	for _, class := range []error{
		device.ErrTransient, device.ErrOutOfMemory, device.ErrTimeout, device.ErrSticky,
		device.ErrLost,
	} {
		for _, op := range []faults.Op{faults.Alloc, faults.Launch, faults.Copy, faults.Wait} {
			t.Run(fmt.Sprintf("%v %v", op, class), func(t *testing.T) {
				t.Parallel() // most of the time is the pause before a shard starts again
				s := newSick(t)
				all := observations(n, 7)
				first := s.current()
				s.announce(t, "x", text(1, 4), all[:6])
				s.answered(t, "x", 6)
				calls := first.Calls(op)
				first.Fail(op, 0, 1, class)
				// a shard that begins takes memory and has its page brought back; a batch like
				// those before does neither
				if op == faults.Alloc || op == faults.Copy {
					first.Fail(faults.Launch, 0, 1, device.ErrTransient)
				}
				s.append(t, "x", 6, all[6:])
				s.same(t, want)
				if first.Calls(op) == calls {
					t.Error("there was no such call")
				}
				s.mu.Lock()
				opened := len(s.devices)
				s.mu.Unlock()
				broken := errors.Is(class, device.ErrSticky) || errors.Is(class, device.ErrLost)
				if broken && opened != 2 || !broken && opened != 1 || s.hosts.Load() != 0 {
					t.Errorf("%d devices were opened, and %d hosts", opened, s.hosts.Load())
				}
				if l := s.agent.Level(); l != pool.Reduced {
					t.Errorf("level %v", l)
				}
			})
		}
	}
}

// TestLevels: the agent goes through all levels and back while its device fails and mends, its
// metrics and its health say so, and its answers are the same as with a device that does not fail.
func TestLevels(t *testing.T) {
	const n = 40
	want, all := undisturbed(t, n), observations(n, 7)
	s := newSick(t)
	s.announce(t, "x", text(1, 4), all[:5])
	s.answered(t, "x", 5)
	d := s.current()

	d.Fail(faults.Launch, 0, 1<<30, device.ErrTransient) // every launch, also launches of probes
	s.append(t, "x", 5, all[5:20])
	s.answered(t, "x", 20) // by the host
	s.level(t, pool.OnHost)
	s.logged(t, "to=reduced")
	s.logged(t, "to=host")
	s.logged(t, "the device is not sound")
	if s.hosts.Load() == 0 || values(t, s.reg)["exoswarm_gpuagent_device_errors_total"] < 5 ||
		values(t, s.reg)["exoswarm_gpuagent_level"] != 2 {
		t.Errorf("%d hosts, %v", s.hosts.Load(), values(t, s.reg))
	}
	d.Heal()
	s.quiet(t, pool.Normal)
	s.append(t, "x", 20, all[20:])
	s.same(t, want)
	if g := values(t, s.reg)["exoswarm_gpuagent_level"]; g != 0 {
		t.Errorf("the level is measured as %v", g)
	}
	if err := s.agent.Health(); err != nil {
		t.Errorf("s.agent.Health: %v", err)
	}
}

// TestNoDevice: a device that has broken and cannot be opened again leaves the host to do the work;
// it serves again when it can be.
func TestNoDevice(t *testing.T) {
	t.Parallel()
	const n = 30
	want, all := undisturbed(t, n), observations(n, 7)
	s := newSick(t)
	s.announce(t, "x", text(1, 4), all[:5])
	s.answered(t, "x", 5)
	s.setRefuse(fmt.Errorf("%w: %w", device.ErrSticky, device.ErrRestart))
	s.current().Fail(faults.Launch, 0, 1, device.ErrSticky)
	s.append(t, "x", 5, all[5:20])
	s.answered(t, "x", 20)
	s.level(t, pool.OnHost)
	s.logged(t, "the process must be restarted")
	s.setRefuse(nil)
	s.quiet(t, pool.Normal)
	s.append(t, "x", 20, all[20:])
	s.same(t, want)
	if s.current() == s.devices[0] {
		t.Error("no other device was opened")
	}
}

// TestEmergency: an agent without a host device to go to gives its shard back when too much fails,
// so that another one answers; it says so.
func TestEmergency(t *testing.T) {
	const n = 20
	want, all := undisturbed(t, n), observations(n, 7)
	s := &sick{rig: newRig(t)}
	d := hostDevice(t)
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "failing", Device: d, Queue: s.conn.Swarms, LeaseTTL: time.Minute, Patience: s.patience(),
		Logger: slog.New(slog.NewTextHandler(s, nil)),
	})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v", err)
	}
	t.Cleanup(func() {
		agent.Stop()
		if err := d.Close(); err != nil {
			t.Errorf("d.Close: %v", err)
		}
	})
	s.announce(t, "x", text(1, 4), all[:5])
	s.answered(t, "x", 5)
	d.Fail(faults.Launch, 0, 1<<30, device.ErrTransient)
	s.append(t, "x", 5, all[5:])
	s.wait(t, "emergency", func() bool { return agent.Level() == pool.Emergency })
	if err := agent.Health(); !errors.Is(err, pool.ErrEmergency) {
		t.Errorf("health: %v", err)
	}
	var p atomic.Pointer[gpuagents.Agent]
	p.Store(agent)
	if err := healthy(agent.Devices, &p)(t.Context()); !errors.Is(err, pool.ErrEmergency) {
		t.Errorf("/healthz: %v", err)
	}
	s.wait(t, "the shard given back", func() bool { return agent.Shards() == 0 })
	s.agent = s.start(t, gpuagents.Options{})
	s.same(t, want)
	if agent.Shards() != 0 {
		t.Errorf("%d shards in an emergency", agent.Shards())
	}
}
