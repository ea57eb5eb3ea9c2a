package gpubatch

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
)

var (
	// ErrDevice marks a failure of a device. The state that a shard has on the device is lost and
	// is rebuilt from the log.
	ErrDevice = errors.New("device failed")
	// ErrNoMemory marks a batch that was not started because the device has no memory for it. It is
	// an ErrDevice.
	ErrNoMemory = fmt.Errorf("%w: no room for a batch", ErrDevice)
)

// The classes of failures, as metrics and logs name them.
const (
	ClassMemory    = "memory"    // out of memory
	ClassBroken    = "broken"    // the device must be opened again
	ClassTimeout   = "timeout"   // the watchdog of the device ended the work
	ClassTransient = "transient" // the next attempt may succeed
	ClassOther     = "other"
)

// ClassOf returns the class of a failure of a device, and "" for any other error.
func ClassOf(err error) string {
	for _, c := range []struct {
		is   error
		name string
	}{
		{device.ErrSticky, ClassBroken},
		{device.ErrLost, ClassBroken},
		{device.ErrRestart, ClassBroken},
		{device.ErrOutOfMemory, ClassMemory},
		{device.ErrTimeout, ClassTimeout},
		{device.ErrTransient, ClassTransient},
		{ErrDevice, ClassOther},
	} {
		if errors.Is(err, c.is) {
			return c.name
		}
	}
	return ""
}

// Mark wraps an error of the package device in ErrDevice. It returns other errors, such as the
// errors of a store, as they are.
func Mark(err error) error {
	if err == nil || errors.Is(err, ErrDevice) {
		return err
	}
	for _, class := range []error{
		device.ErrOutOfMemory, device.ErrInvalidArgument, device.ErrSticky, device.ErrRestart, device.ErrTimeout,
		device.ErrLost, device.ErrNotSupported, device.ErrTransient, device.ErrClosed,
	} {
		if errors.Is(err, class) {
			return Failed(err)
		}
	}
	return err
}

// Failed wraps any error in ErrDevice. It returns nil for nil.
func Failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrDevice, err)
}

// AllocError wraps an error of an allocation for a batch: in ErrNoMemory if the device is out of
// memory, and in ErrDevice otherwise. It returns nil for nil.
func AllocError(err error) error {
	if errors.Is(err, device.ErrOutOfMemory) {
		return fmt.Errorf("%w: %w", ErrNoMemory, err)
	}
	return Failed(err)
}
