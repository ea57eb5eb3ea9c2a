package gpuprocess

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
)

// sensed is a device with sensors that a test sets. All else is the host device's.
type sensed struct {
	device.Device
	sensors device.Sensors
}

// Health implements device.Device.
func (d *sensed) Health(ctx context.Context, claims ...device.Claim) device.Health {
	h := d.Device.Health(ctx, claims...)
	s := d.sensors
	h.Sensors = &s
	return h
}

// labelled returns the values of a family by its labels without device, joined with blanks.
func labelled(t *testing.T, r *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	all, err := r.Gather()
	if err != nil {
		t.Fatalf("r.Gather: %v", err)
	}
	by := map[string]float64{}
	for _, f := range all {
		for _, m := range f.GetMetric() {
			if f.GetName() != name {
				continue
			}
			key := ""
			for _, l := range m.GetLabel() {
				if l.GetName() != "device" {
					key += l.GetValue()
				}
			}
			by[key] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return by
}

// TestDeviceCounters: energy, copied bytes, clocks, Xids and launches of a device follow what it
// reports, in base units. What a chip does not measure is absent, and an Xid that nobody has named
// is counted with the others.
func TestDeviceCounters(t *testing.T) {
	host, err := cuda.Open(t.Context(), "host", cuda.Options{})
	if err != nil {
		t.Fatalf("cuda.Open host: %v", err)
	}
	defer host.Close() //nolint:errcheck // the test ends
	d := &sensed{Device: host, sensors: device.Sensors{
		EnergyMillijoules: -1, ClockMHz: -1, MemoryClockMHz: -1,
	}}
	r := prometheus.NewRegistry()
	r.MustRegister(newDeviceMetrics(func() device.Device { return d }))
	for _, name := range []string{"energy_joules_total", "clock_hertz"} {
		if got := labelled(t, r, "exoswarm_device_"+name); len(got) != 0 {
			t.Errorf("%s of a chip that does not measure it: %v", name, got)
		}
	}
	xids := labelled(t, r, "exoswarm_device_xid_errors_total")
	if len(xids) != len(knownXids)+1 || xids["79"] != 0 || xids["other"] != 0 {
		t.Errorf("before the first Xid: %v", xids)
	}
	if n := labelled(t, r, "exoswarm_device_kernel_launches_total")[""]; n != 0 {
		t.Errorf("%v launches before the first", n)
	}
	b, err := host.Alloc(64, "test")
	if err != nil {
		t.Fatalf("host.Alloc: %v", err)
	}
	if _, err := device.Checksum(t.Context(), host, b, 0, 64); err != nil {
		t.Fatalf("device.Checksum: %v", err)
	}
	if err := errors.Join(b.Write(0, make([]byte, 64)), b.Write(0, make([]byte, 64))); err != nil {
		t.Fatalf("b.Write: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatalf("b.Close: %v", err)
	}
	d.sensors = device.Sensors{
		EnergyMillijoules: 2500, ClockMHz: 1980, MemoryClockMHz: 2619,
		XidCounts: map[int]int64{79: 1, 31: 2, 4711: 3, 4712: 4},
	}
	for name, want := range map[string]map[string]float64{
		"energy_joules_total":   {"": 2.5},
		"copied_bytes_total":    {"in": 64 + 64, "out": 16}, // out: the checksum
		"clock_hertz":           {"sm": 1.98e9, "memory": 2.619e9},
		"xid_errors_total":      {"79": 1, "31": 2, "other": 7, "48": 0},
		"kernel_launches_total": {"": 1},
	} {
		got := labelled(t, r, "exoswarm_device_"+name)
		for key, v := range want {
			if got[key] != v {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
	}
}
