package pool

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Accelerator is a further device of an agent.
type Accelerator struct {
	// Device belongs to the caller, who closes it after the agent has ended.
	Device device.Device
	// Open opens the device anew when it has broken; see Options.
	Open func(ctx context.Context) (device.Device, error)
	// PageMemory is how many bytes of the device the pages of all shards may take; 0: all that they need.
	PageMemory int64
	// Shared reports whether its memory is the machine's.
	Shared bool
}
