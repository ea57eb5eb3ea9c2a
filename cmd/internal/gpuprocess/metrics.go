package gpuprocess

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// healthPatience bounds a check of a device, for which a scrape of the metrics waits.
const healthPatience = 2 * time.Second

// healthy returns the check of the agent and its devices. It fails when the agent is not healthy,
// or when every device is in an emergency or has failed without the host device in its place. One
// working device is enough, because it serves the shards of the others.
func healthy(current func() []device.Device, agent *atomic.Pointer[gpuagents.Agent]) command.Check {
	return func(ctx context.Context) error {
		// Without an agent, while the process starts, only the devices are asked.
		var levels []pool.Level
		if a := agent.Load(); a != nil {
			if err := a.Health(); err != nil {
				return err
			}
			levels = a.Levels()
		}
		ctx, cancel := context.WithTimeout(ctx, healthPatience)
		defer cancel()
		var errs []error
		for i, d := range current() {
			level := pool.Normal
			if levels != nil {
				level = levels[i]
			}
			if level == pool.OnHost { // the host device serves in its place
				return nil
			}
			h := d.Health(ctx)
			if h.State != device.Failed && level < pool.Emergency {
				return nil
			}
			if level == pool.Emergency {
				h.Reasons = append(h.Reasons, "too much has failed on it")
			}
			errs = append(errs, fmt.Errorf("%s has failed: %s", d.Properties().Name, strings.Join(h.Reasons, "; ")))
		}
		return errors.Join(errs...)
	}
}

// newFallbackMetric returns a gauge that is 1 when --device auto has chosen the host device because
// no GPU can be used.
func newFallbackMetric(on bool) prometheus.Collector {
	g := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "exoswarm_gpuagent_auto_fallback", Help: "1 when --device auto chose the host device because no GPU " +
			"can be used, else 0.",
	})
	if on {
		g.Set(1)
	}
	return g
}

// deviceMetrics collects the state, memory and sensors of one device at each scrape.
type deviceMetrics struct {
	// current returns the device of the moment: after a fault it may be another one, of the same
	// name.
	current func() device.Device

	state, inUse, cached, temperature, power, busy, memoryBusy, ecc *prometheus.Desc
	size, process, throttled, info                                  *prometheus.Desc
	energy, copied, clock, xids, launches                           *prometheus.Desc
}

// newDeviceMetrics returns the metrics of a device, labelled with its name. current returns the
// device of the moment, always of the same name.
func newDeviceMetrics(current func() device.Device) *deviceMetrics {
	m := describeDevice(current().Properties().Name)
	m.current = current
	return m
}

// describeDevice returns the metrics of a device of a name, which collect nothing yet.
func describeDevice(name string) *deviceMetrics {
	desc := func(metric, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("exoswarm_device_"+metric, help, labels, prometheus.Labels{"device": name})
	}
	return &deviceMetrics{
		state:       desc("state", "1 for the state that the device is in: ok, degraded or failed.", "state"),
		inUse:       desc("memory_in_use_bytes", "Device memory of open buffers."),
		cached:      desc("memory_cached_bytes", "Device memory that is kept for the next buffers."),
		temperature: desc("temperature_celsius", "Temperature of the chip."),
		power:       desc("power_watts", "Power of the board."),
		busy:        desc("busy_ratio", "Share of the last sample period in which a kernel ran."),
		memoryBusy: desc("memory_busy_ratio", "Share of the last sample period in which device memory was read or "+
			"written."),
		ecc:  desc("memory_errors_total", "Memory errors since the driver was loaded.", "kind"),
		size: desc("memory_size_bytes", "Size of device memory; of the host device, the memory that it may use."),
		process: desc(
			"memory_process_bytes",
			"Device memory of this process as the driver sees it, contexts included.",
		),
		throttled: desc("throttled", "1 while the clocks are held down for the reason; reasons without one are "+
			"absent.", "reason"),
		info:   desc("info", "1, labelled with the model of the device.", "model"),
		energy: desc("energy_joules_total", "Energy that the board has used since the driver was loaded."),
		copied: desc("copied_bytes_total", "Bytes that this process has copied from host memory to the device (in) "+
			"and back (out) since it opened the device.", "direction"),
		clock: desc("clock_hertz", "Clock of the multiprocessors (sm) and of the memory.", "domain"),
		xids: desc("xid_errors_total", "Critical errors that the driver has reported since the process opened the "+
			"device, by their Xid; rare ones share the value other.", "xid"),
		launches: desc("kernel_launches_total", "Kernels that this process has launched on the device since it opened "+
			"it. The kernels of a graph count when it is recorded."),
	}
}

// Describe implements prometheus.Collector.
func (m *deviceMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		m.state, m.inUse, m.cached, m.temperature, m.power, m.busy, m.memoryBusy,
		m.ecc, m.size, m.process, m.throttled, m.info, m.energy, m.copied, m.clock, m.xids, m.launches,
	} {
		out <- d
	}
}

// Collect implements prometheus.Collector. It leaves out values that the chip does not measure. It
// waits for the device for at most healthPatience, and several scrapes may run at a time.
func (m *deviceMetrics) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), healthPatience)
	defer cancel()
	now := m.current()
	h := now.Health(ctx)
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, s := range []device.State{device.OK, device.Degraded, device.Failed} {
		v := 0.0
		if s == h.State {
			v = 1
		}
		gauge(m.state, v, s.String())
	}
	gauge(m.size, float64(now.Properties().MemoryBytes))
	gauge(m.info, 1, now.Properties().Model)
	gauge(m.inUse, float64(h.InUse))
	gauge(m.cached, float64(h.Cached))
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	counter(m.launches, float64(h.Launches))
	counter(m.copied, float64(h.ToDevice), "in")
	counter(m.copied, float64(h.FromDevice), "out")
	s := h.Sensors
	if s == nil {
		return
	}
	for label, n := range xidLabels(s.XidCounts) {
		counter(m.xids, float64(n), label)
	}
	if s.EnergyMillijoules >= 0 {
		counter(m.energy, float64(s.EnergyMillijoules)*1e-3)
	}
	for domain, mhz := range map[string]int{"sm": s.ClockMHz, "memory": s.MemoryClockMHz} {
		if mhz >= 0 {
			gauge(m.clock, float64(mhz)*1e6, domain)
		}
	}
	for _, x := range []struct {
		d     *prometheus.Desc
		v     int
		scale float64
	}{
		{m.temperature, s.Temperature, 1},
		{m.power, s.PowerMilliwatts, 1e-3},
		{m.busy, s.Utilisation, 1e-2},
		{m.memoryBusy, s.MemoryUtilisation, 1e-2},
	} {
		if x.v >= 0 {
			gauge(x.d, float64(x.v)*x.scale)
		}
	}
	if s.ProcessBytes >= 0 {
		gauge(m.process, float64(s.ProcessBytes))
	}
	for _, reason := range s.Throttle {
		gauge(m.throttled, 1, reason)
	}
	for kind, n := range map[string]int64{"corrected": s.ECCCorrected, "uncorrected": s.ECCUncorrected} {
		if n >= 0 {
			counter(m.ecc, float64(n), kind)
		}
	}
}

// knownXids have a value of the label xid of their own: errors of kernels (13, 31, 43, 45), of
// memory (48, 63, 64, 92, 94, 95), of links (74) and of the device itself (79, 119).
var knownXids = []int{13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119}

// xidLabels returns the counts of Xids by the value of their label. Every value is there, so that
// the first error of a code is an increase.
func xidLabels(counts map[int]int64) map[string]int64 {
	all := map[string]int64{"other": 0}
	for _, xid := range knownXids {
		all[strconv.Itoa(xid)] = 0
	}
	for xid, n := range counts {
		label := "other"
		if slices.Contains(knownXids, xid) {
			label = strconv.Itoa(xid)
		}
		all[label] += n
	}
	return all
}

// Families returns the metric families of the process, whether they have series at present or not.
func Families() ([]command.Family, error) {
	r, err := command.Describe("gpuagent")
	if err != nil {
		return nil, err
	}
	r.MustRegister(describeDevice("host"), newFallbackMetric(false))
	_, err = gpuagents.NewMetrics(r)
	if err == nil {
		_, err = natsq.NewMetrics(r)
	}
	return r.Families(), err
}
