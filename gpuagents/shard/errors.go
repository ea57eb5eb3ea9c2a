package shard

import (
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/tiers"
)

// hopeless says that making a shard on a device will not succeed another time either: it has no room, or cannot do it at all.
func permanent(err error) bool {
	for _, class := range []error{device.ErrOutOfMemory, device.ErrInvalidArgument, device.ErrNotSupported} {
		if errors.Is(err, class) {
			return true
		}
	}
	return fault.ClassOf(fault.Mark(err)) == ""
}

// noRoom says that a shard does not fit into the memory that there is.
func outOfMemory(err error) bool {
	refused := (*jobs.Error)(nil)
	return errors.Is(err, device.ErrOutOfMemory) || errors.As(err, &refused) && refused.Code == jobs.CodeDevice
}

// damaged says that the store has lost a page or has other bytes than were written, so that the shard must start from its log.
func damaged(err error) bool {
	return (errors.Is(err, tiers.ErrCorrupt) || errors.Is(err, tiers.ErrLost)) && !errors.Is(err, fault.ErrDevice)
}
