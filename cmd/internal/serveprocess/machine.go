package serveprocess

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// machineSpec is the swarm that watches this machine: each metric is an entity. With this alarm two
// hours of a simulated idle machine have one or two false incidents, and a load of one processor or of four
// processes is found within 8 s.
const machineSpec = `
name: this-machine
cell:
  kind: predictor
  params: {alarm: 0.55}
agents_per_group: 64
timestamp: time
key: metric
max_entities: 8
features: [value]
vote:
  candidates: [normal, suspicious, anomalous]
  rule: weighted
explain: true
`

// floors are the metrics, each with half of the width of a noise that is added to its values. Without it a
// metric that is 0 for hours would surprise with its first byte.
var floors = map[string]float64{
	"cpu_percent": 3, "runnable_processes": 0.25, "memory_percent": 0.2, "disk_percent": 2, "network_mib_s": 0.1,
}

// smooth is the weight of a new value in what the detector gets: a mean over about ten seconds.
const smooth = 0.15

// machine watches the machine of this process with a detector.
type machine struct {
	own
	every time.Duration
}

func newMachine(conn *natsq.Conn, snapshots bucket.Bucket, log *slog.Logger) *machine {
	return &machine{
		own: own{conn: conn, log: log, snapshots: snapshots, trimEvery: trimEvery}, every: time.Second,
	}
}

// watch pushes a row each second until ctx ends. It returns an error only if it cannot begin: on a
// system without /proc.
func (m *machine) watch(ctx context.Context) (err error) {
	meter, err := newMeter("/proc")
	if err != nil {
		return fmt.Errorf("--watch-this-machine: %w", err)
	}
	if m.spec, err = swarm.Parse("this-machine.yaml", []byte(machineSpec)); err != nil {
		return err
	}
	if _, err := m.make(ctx); err != nil {
		return fmt.Errorf("detector of this machine: %w", err)
	}
	return m.trimmed(ctx, func(ctx context.Context) error { return m.feed(ctx, meter) })
}

// feed pushes rows until ctx ends.
func (m *machine) feed(ctx context.Context, meter *meter) error {
	means := map[string]float64{}
	tick := time.NewTicker(m.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			values, err := meter.read(now)
			if err != nil {
				m.log.Warn("metrics of this machine", "error", err)
				continue
			}
			m.push(ctx, lines(values, means, now))
		}
	}
}

// lines returns rows with the means of values, in NDJSON, and updates the means.
func lines(values, means map[string]float64, at time.Time) (rows []byte) {
	for _, name := range slices.Sorted(maps.Keys(floors)) {
		v := values[name] + floors[name]*(2*rand.Float64()-1) //nolint:gosec // noise
		mean, ok := means[name]
		if !ok {
			mean = v
		}
		means[name] = mean + smooth*(v-mean)
		rows = fmt.Appendf(rows, "{\"time\":%q,\"metric\":%q,\"value\":%.2f}\n",
			at.UTC().Format(time.RFC3339Nano), name, means[name])
	}
	return rows
}

// meter reads the metrics of a machine. A rate is over the time since the read before. One goroutine
// uses it.
type meter struct {
	proc   procfs.FS
	disks  blockdevice.FS
	before counters
}

// counters are sums since the start of the machine.
type counters struct {
	at               time.Time
	busy, all        float64            // seconds of processors
	bytes            float64            // of networks
	disk             map[string]float64 // seconds of input and output by disk
	runnable, memory float64
}

func newMeter(dir string) (m *meter, err error) {
	m = &meter{}
	if m.proc, err = procfs.NewFS(dir); err == nil {
		m.disks, err = blockdevice.NewFS(dir, dir)
	}
	if err == nil {
		m.before, err = m.count(time.Now())
	}
	return m, err
}

// read returns the metrics of floors.
func (m *meter) read(at time.Time) (map[string]float64, error) {
	now, err := m.count(at)
	if err != nil {
		return nil, err
	}
	was := m.before
	m.before = now
	took := max(now.at.Sub(was.at).Seconds(), 1e-3)
	disk := 0.0
	for name, sum := range now.disk {
		if before, ok := was.disk[name]; ok {
			disk = max(disk, (sum-before)/took)
		}
	}
	cpu := 0.0
	if now.all > was.all {
		cpu = (now.busy - was.busy) / (now.all - was.all)
	}
	return map[string]float64{
		"cpu_percent": 100 * cpu, "runnable_processes": now.runnable, "memory_percent": 100 * now.memory,
		"disk_percent": 100 * min(disk, 1), "network_mib_s": max(0, now.bytes-was.bytes) / took / (1 << 20),
	}, nil
}

func (m *meter) count(at time.Time) (c counters, err error) {
	c.at = at
	s, err := m.proc.Stat()
	if err != nil {
		return c, fmt.Errorf("read the processors: %w", err)
	}
	t := s.CPUTotal
	c.busy = t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal
	c.all = c.busy + t.Idle + t.Iowait
	c.runnable = float64(max(s.ProcessesRunning, 1) - 1) // this process is one
	mem, err := m.proc.Meminfo()
	if err != nil {
		return c, fmt.Errorf("read the memory: %w", err)
	}
	if mem.MemTotal != nil && mem.MemAvailable != nil && *mem.MemTotal > 0 {
		c.memory = 1 - float64(*mem.MemAvailable)/float64(*mem.MemTotal)
	}
	nets, err := m.proc.NetDev()
	if err != nil {
		return c, fmt.Errorf("read the networks: %w", err)
	}
	for name, n := range nets {
		if name != "lo" {
			c.bytes += float64(n.RxBytes + n.TxBytes)
		}
	}
	disks, err := m.disks.ProcDiskstats()
	if err != nil { // a container may have none
		return c, nil //nolint:nilerr // the disks stay at 0
	}
	c.disk = map[string]float64{}
	for _, d := range disks {
		if !strings.HasPrefix(d.DeviceName, "loop") && !strings.HasPrefix(d.DeviceName, "ram") {
			c.disk[d.DeviceName] = float64(d.IOsTotalTicks) / 1000
		}
	}
	return c, nil
}
