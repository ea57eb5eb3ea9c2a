package launches

import (
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
)

// Host opens the host device with poisoned memory, so that a read of memory that nothing has
// written shows.
func Host(t testing.TB) device.Device {
	t.Helper()
	return Open(t, func(t testing.TB, limit int64) device.Device {
		d, err := host.Open(host.Options{MemoryLimit: limit, Poison: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}
