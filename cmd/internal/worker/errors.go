package worker

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
)

// Code is the number of an error in worker_cuda.h, which has their texts.
type Code int32

// The codes 1 to 8 and 99 are the codes of the design that the library follows (docs/worker.md).
const (
	Success              Code = 0
	DeviceNotFound       Code = 1
	OutOfMemory          Code = 2
	InvalidDevice        Code = 3
	ModelLoadFailed      Code = 4
	InferenceFailed      Code = 5
	ResidencyFailed      Code = 6
	KernelLaunchFailed   Code = 7
	InvalidParameter     Code = 8
	MemcpyFailed         Code = 9
	InitializationFailed Code = 10
	QueryFailed          Code = 11
	Cancelled            Code = 12
	Forked               Code = 13
	Unknown              Code = 99
)

// Errors of this package. Errors of a device are wrapped.
var (
	// ErrNoDevice: the machine has no GPU that this process can use.
	ErrNoDevice = errors.New("no device")
	// ErrDevice: there is no device of that number.
	ErrDevice = errors.New("no such device")
	// ErrCancelled: Cancel has ended the inference.
	ErrCancelled = errors.New("cancelled")
)

// CodeOf returns the code of an error: the code of its class, or otherwise, which is the code of
// the call that failed. It is Success for nil.
func CodeOf(err error, otherwise Code) Code {
	if err == nil {
		return Success
	}
	for _, c := range []struct {
		class error
		code  Code
	}{
		{ErrCancelled, Cancelled},
		{context.Canceled, Cancelled},
		{ErrNoDevice, DeviceNotFound},
		{ErrDevice, InvalidDevice},
		{pages.ErrResidency, ResidencyFailed},
		{device.ErrOutOfMemory, OutOfMemory},
		{weights.ErrRoom, OutOfMemory},
		{device.ErrSticky, KernelLaunchFailed},
		{device.ErrTimeout, KernelLaunchFailed},
		{device.ErrInvalidArgument, InvalidParameter},
		{transformer.ErrRun, InvalidParameter},
		{tokenizer.ErrText, InvalidParameter},
	} {
		if errors.Is(err, c.class) {
			return c.code
		}
	}
	return otherwise
}
