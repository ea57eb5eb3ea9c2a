package device

import "errors"

// The classes of device error. Every error of a device wraps one of them, so callers choose with
// errors.Is.
var (
	// ErrOutOfMemory: the device, or the limit configured for it, has no room. Free something or
	// ask for less.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrInvalidArgument: the call was wrong and did not reach the device.
	ErrInvalidArgument = errors.New("invalid argument")
	// ErrSticky: the device's context is broken; every further call fails until the device is
	// reopened, and where the driver refuses that, Open returns ErrRestart. After a fault of a
	// kernel on an H200 with driver 580 it never did.
	ErrSticky = errors.New("device context is broken")
	// ErrRestart: the driver lets no context of this process work any more; a new process can use
	// the device. It comes together with ErrSticky, when opening a device again has failed after a
	// fault.
	ErrRestart = errors.New("the process must be restarted to use the device again")
	// ErrTimeout: work has not ended within the time that the device's watchdog allows. The work
	// continues: a GPU has no way to stop a kernel, and only the end of the process is sure to.
	ErrTimeout = errors.New("work takes longer than the watchdog allows")
	// ErrLost: the device is gone (fallen off the bus, driver unloaded).
	ErrLost = errors.New("device is lost")
	// ErrNotSupported: this device or build cannot do what was asked.
	ErrNotSupported = errors.New("not supported")
	// ErrTransient: the same call may succeed when it is repeated.
	ErrTransient = errors.New("transient device error")
	// ErrClosed: the device, buffer or stream was closed before.
	ErrClosed = errors.New("closed")
	// ErrLeak: Close found something that its owner had not closed.
	ErrLeak = errors.New("not closed before its device")
)
