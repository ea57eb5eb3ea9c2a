// Package fault classifies the failures of devices.
package fault

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// ErrDevice marks a failure of a device. The state that a shard has on the device is lost and is
// rebuilt from the log.
var ErrDevice = errors.New("device failed")

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

// Mark wraps an error of the package device in ErrDevice. It returns other errors, such as those of
// a store, as they are.
func Mark(err error) error {
	if err == nil || errors.Is(err, ErrDevice) {
		return err
	}
	for _, class := range []error{
		device.ErrOutOfMemory, device.ErrInvalidArgument, device.ErrSticky, device.ErrRestart, device.ErrTimeout,
		device.ErrLost, device.ErrNotSupported, device.ErrTransient, device.ErrClosed,
	} {
		if errors.Is(err, class) {
			return fmt.Errorf("%w: %w", ErrDevice, err)
		}
	}
	return err
}
