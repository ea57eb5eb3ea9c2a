package pool

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Accelerator is a device of an agent.
type Accelerator struct {
	// Device belongs to the caller, who closes it after the pool.
	Device device.Device
	// Open opens the device again after it broke; the pool owns and closes what it returns. nil:
	// Device is used again, which only helps if it recovers by itself.
	Open func(ctx context.Context) (device.Device, error)
	// PageMemory is how many bytes of the device the pages of all shards may take; 0: all that they
	// need.
	PageMemory int64
	// Shared reports whether the device uses the memory of the machine.
	Shared bool
}
