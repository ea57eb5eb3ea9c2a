package host_test

import (
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/host"
)

func TestMemoryLog(t *testing.T) {
	devicetest.MemoryLog(t, func(log *slog.Logger) device.Device {
		d, err := host.Open(host.Options{Logger: log})
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}
