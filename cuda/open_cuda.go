//go:build cuda

package cuda

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/internal/driver"
)

func openCUDA(ctx context.Context, index int, opts Options, requested, reason string) (device.Device, error) {
	d, err := driver.Open(ctx, index, driver.Options{
		MemoryLimit: opts.MemoryLimit, CacheDir: opts.CacheDir, Watchdog: opts.Watchdog, Logger: opts.Logger,
		Requested: requested, Reason: reason,
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Count returns the number of GPUs that this process sees. The error is the reason for none.
func Count() (int, error) { return driver.Init() }
