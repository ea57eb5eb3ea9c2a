package gpuagents

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/jobs"
)

// ErrDevice marks a failure of the accelerator; the shard's state on it is lost and is rebuilt from the log.
var ErrDevice = errors.New("device failed")

// ErrEmergency is what an agent says of itself that takes no work because too much of it failed.
var ErrEmergency = errors.New("too much fails on this agent's device")

// errMoved ends the work on a shard that is to go on elsewhere: on another device of this agent, or with another agent.
var errMoved = errors.New("the shard goes to another device")

// errFit marks a batch that was not begun, because there is no room for it on the device.
var errFit = fmt.Errorf("%w: no room for a batch", ErrDevice)

// unfit marks an error of taking memory for a batch: as an errFit where there is no room.
func unfit(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, device.ErrOutOfMemory):
		return fmt.Errorf("%w: %w", errFit, err)
	}
	return fmt.Errorf("%w: %w", ErrDevice, err)
}

// The classes of failures, as metrics and logs name them.
const (
	classMemory    = "memory"    // out of memory
	classBroken    = "broken"    // the device must be opened anew
	classTimeout   = "timeout"   // the watchdog
	classTransient = "transient" // it may do the next time
	classOther     = "other"
)

// classOf is the class of a failure of the device; empty for any other error.
func classOf(err error) string {
	for _, c := range []struct {
		is   error
		name string
	}{
		{device.ErrSticky, classBroken},
		{device.ErrLost, classBroken},
		{device.ErrRestart, classBroken},
		{device.ErrOutOfMemory, classMemory},
		{device.ErrTimeout, classTimeout},
		{device.ErrTransient, classTransient},
		{ErrDevice, classOther},
	} {
		if errors.Is(err, c.is) {
			return c.name
		}
	}
	return ""
}

// hopeless says that making a shard on a device will not succeed another time either: it has no room, or cannot do it at all.
func hopeless(err error) bool {
	for _, class := range []error{device.ErrOutOfMemory, device.ErrInvalidArgument, device.ErrNotSupported} {
		if errors.Is(err, class) {
			return true
		}
	}
	return classOf(classed(err)) == ""
}

// noRoom says that a shard does not fit into the memory that there is.
func noRoom(err error) bool {
	refused := (*jobs.Error)(nil)
	return errors.Is(err, device.ErrOutOfMemory) || errors.As(err, &refused) && refused.Code == jobs.CodeDevice
}
