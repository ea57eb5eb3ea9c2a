package staging

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
)

// ErrNoMemory marks a batch that was not begun because the device has no memory for it. It is a
// fault.ErrDevice.
var ErrNoMemory = fmt.Errorf("%w: no room for a batch", fault.ErrDevice)

// AllocError marks an error of an allocation for a batch: as an ErrNoMemory where the device is out
// of memory, and as a fault.ErrDevice else. It returns nil for nil.
func AllocError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, device.ErrOutOfMemory):
		return fmt.Errorf("%w: %w", ErrNoMemory, err)
	}
	return fmt.Errorf("%w: %w", fault.ErrDevice, err)
}
