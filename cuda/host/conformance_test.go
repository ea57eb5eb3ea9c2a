package host_test

import (
	"log/slog"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/host"
)

func TestConformance(t *testing.T) {
	devicetest.Run(t, func(t testing.TB, limit int64) device.Device {
		d, err := host.Open(host.Options{MemoryLimit: limit, Workers: 4, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}
