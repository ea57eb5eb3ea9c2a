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
		"ECCCorrected:30 ECCUncorrected:2 Throttle:[power limit hardware thermal slowdown] Xids:[63]}"
	if got := fmt.Sprintf("%+v", h.Sensors); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if all := strings.Join(h.Reasons, "; "); h.State != device.Degraded ||
		all != "the driver has reported Xid 63; 2 uncorrectable memory errors since the driver was loaded; the "+
			"clocks are held down: hardware thermal slowdown" {
		t.Errorf("%v: %s", h.State, all)
	}
	if h := d.Health(context.Background()); len(h.Sensors.Xids) != 0 || len(h.Reasons) != 2 {
		t.Errorf("the second time: %v", h.Reasons)
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
