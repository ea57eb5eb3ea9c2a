package serveprocess

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"github.com/prometheus/procfs/blockdevice"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// machineSpec is the swarm that watches this machine: each metric is an entity. TestMachineSeries
// has what it finds. After a loud row only a louder one alarms again for ten minutes, as a job that
// repeats is no news. Half of the past is forgotten in an hour.
const machineSpec = `
name: this-machine
cell:
  kind: predictor
  params: {alarm: 0.5, block: 40, hold_off: 600, memory: 3600}
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

// metric is what of a metric matters to people, in its units.
type metric struct {
	// ordinary is the level below which differences do not matter: a value below it counts as it.
	ordinary float64
	// effect is the smallest change that matters: the width of a noise that is added. Without it a
	// metric that is 0 for hours would surprise with its first byte, and a louder one would not
	// surprise afterwards.
	effect float64
	// perProcessor multiplies both by the number of processors.
	perProcessor bool
}

var metrics = map[string]metric{
	"cpu_percent": {60, 40, false}, "runnable_processes": {2, 2.5, true}, "memory_percent": {0, 4, false},
	"disk_percent": {30, 40, false}, "network_mib_s": {8, 30, false},
}

// sustained is the number of seconds whose median is a row: what lasts less than half of them is
// not seen. Processors, disks and networks are busy for seconds now and then.
const sustained = 11

// samples is how often the runnable processes are counted for a row, which has their mean.
const samples = 5

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
	levels := newLevels(runtime.NumCPU(), rand.Uint64())
	tick := time.NewTicker(m.every / samples)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			err := meter.sample()
			var values map[string]float64
			if err == nil && n%samples == 0 {
				values, err = meter.read(now)
			}
			if err != nil {
				m.log.Warn("metrics of this machine", "error", err)
			} else if values != nil {
				m.push(ctx, levels.lines(values, now))
			}
		}
	}
}

// levels are the sustained levels of the metrics, and the noise of their effects.
type levels struct {
	processors float64
	last       map[string][]float64 // of the last seconds, the oldest first
	noise      *rand.Rand
}

func newLevels(processors int, seed uint64) *levels {
	return &levels{float64(processors), map[string][]float64{}, rand.New(rand.NewPCG(seed, 0))} //nolint:gosec // noise
}

// lines updates the levels with values, and returns them as rows in NDJSON.
func (l *levels) lines(values map[string]float64, at time.Time) (rows []byte) {
	for _, name := range slices.Sorted(maps.Keys(metrics)) {
		m, by := metrics[name], 1.0
		if m.perProcessor {
			by = l.processors
		}
		last := append(l.last[name], max(values[name], by*m.ordinary))
		l.last[name] = last[max(0, len(last)-sustained):]
		sorted := slices.Sorted(slices.Values(l.last[name]))
		rows = fmt.Appendf(rows, "{\"time\":%q,\"metric\":%q,\"value\":%.2f}\n", at.UTC().Format(time.RFC3339Nano),
			name, sorted[len(sorted)/2]+by*m.effect*(l.noise.Float64()-0.5))
	}
	return rows
}

// meter reads the metrics of a machine. A rate is over the time since the read before. One
// goroutine uses it.
type meter struct {
	proc   procfs.FS
	disks  blockdevice.FS
	before counters
	// runnable is the sum of the samples since the read before, and counted their number.
	runnable float64
	counted  int
}

// counters are sums since the start of the machine.
type counters struct {
	at        time.Time
	busy, all float64            // seconds of processors
	bytes     float64            // of networks
	disk      map[string]float64 // seconds of input and output by disk
	memory    float64            // used part
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

// sample counts the runnable processes.
func (m *meter) sample() error {
	s, err := m.proc.Stat()
	if err != nil {
		return fmt.Errorf("read the processes: %w", err)
	}
	m.runnable += float64(max(s.ProcessesRunning, 1) - 1) // this process is one
	m.counted++
	return nil
}

// read returns the metrics. The runnable processes are the mean of the samples since the read
// before.
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
	if now.all > was.all { // the kernel's idle time now and then runs back a little
		cpu = min(max((now.busy-was.busy)/(now.all-was.all), 0), 1)
	}
	runnable := m.runnable / float64(max(m.counted, 1))
	m.runnable, m.counted = 0, 0
	return map[string]float64{
		"cpu_percent": 100 * cpu, "runnable_processes": runnable, "memory_percent": 100 * now.memory,
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
		c.bytes += float64(n.TxBytes)
		if name != "lo" { // what it sends it receives
			c.bytes += float64(n.RxBytes)
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
