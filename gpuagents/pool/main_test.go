package pool

import (
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/leak"
)

func TestMain(m *testing.M) { leak.Check(m) }

func openHost(t *testing.T) device.Device {
	t.Helper()
	d, err := cuda.Open(t.Context(), "host", cuda.Options{Poison: true})
	if err != nil {
		t.Fatalf("cuda.Open: %v, want no error", err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("d.Close: %v, want no error", err)
		}
	})
	return d
}
