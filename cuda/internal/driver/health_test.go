//go:build cuda

package driver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// What NVML says becomes words, each once.
func TestFakeSensors(t *testing.T) {
	if filepath.Base(os.Getenv("EXOSWARM_LIBNVML")) != "libfakenvml.so" {
		t.Skip("runs inside TestFakeDriver")
	}
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	if p := d.Properties(); p.PCIeGeneration != 5 || p.PCIeLanes != 16 {
		t.Errorf("link to the host: %+v", p)
	}
	h := d.Health(context.Background())
	want := "&{Temperature:91 PowerMilliwatts:654321 Utilisation:97 MemoryUtilisation:45 ProcessBytes:-1 " +
		"ECCCorrected:30 ECCUncorrected:2 Throttle:[power limit hardware thermal slowdown] Xids:[63] " +
		"XidCounts:map[63:1] EnergyMillijoules:123456789 ClockMHz:1980 MemoryClockMHz:2619}"
	if got := fmt.Sprintf("%+v", h.Sensors); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if all := strings.Join(h.Reasons, "; "); h.State != device.Degraded ||
		all != "the driver has reported Xid 63; 2 uncorrectable memory errors since the driver was loaded; the "+
			"clocks are held down: hardware thermal slowdown" {
		t.Errorf("%v: %s", h.State, all)
	}
	// A probe and a scrape ask in turn: each gets the Xid, which counts once.
	for range 2 {
		if h := d.Health(context.Background()); fmt.Sprint(h.Sensors.Xids, h.Sensors.XidCounts) != "[63] map[63:1]" ||
			len(h.Reasons) != 3 {
			t.Errorf("the next time: %v, %+v", h.Reasons, h.Sensors)
		}
	}
}

// TestSensors prints what the machine's NVML says; a GPU without one is reported too.
func TestSensors(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	runSum(t, d)
	h := d.Health(context.Background())
	t.Logf("health: %v %q, %d bytes in use, %d cached, sensors %+v", h.State, h.Reasons, h.InUse, h.Cached, h.Sensors)
	if h.State == device.Failed {
		t.Error("a sound GPU has failed")
	}
	if s := h.Sensors; s != nil && (s.Temperature < 0 || s.Temperature > 120) {
		t.Errorf("%+v", s)
	}
}

// TestCounters: the counters of a device follow its work: launches, bytes in both directions, and
// energy where NVML has it.
func TestCounters(t *testing.T) {
	d := openGPU(t, Options{})
	defer closeGPU(t, d)
	before := d.Health(context.Background())
	const size = 64 << 20
	b, err := d.Alloc(size, "test")
	if err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	for _, err := range []error{b.Write(0, data), b.Read(0, data), b.Read(0, data), b.Close()} {
		if err != nil {
			t.Fatal(err)
		}
	}
	runSum(t, d)
	after := d.Health(context.Background())
	to, from := after.ToDevice-before.ToDevice, after.FromDevice-before.FromDevice
	if to < size || to > size+1<<20 || from < 2*size || from > 2*size+1<<20 || after.Launches != before.Launches+1 {
		t.Errorf("%d bytes to the device, %d from it, %d launches", to, from, after.Launches-before.Launches)
	}
	if s := after.Sensors; s != nil && s.EnergyMillijoules >= 0 {
		t.Logf("%d mJ, %d and %d MHz", s.EnergyMillijoules-before.Sensors.EnergyMillijoules, s.ClockMHz,
			s.MemoryClockMHz)
		if s.EnergyMillijoules <= before.Sensors.EnergyMillijoules || s.ClockMHz <= 0 {
			t.Errorf("%+v", s)
		}
	}
}
