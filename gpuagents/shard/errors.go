package shard

import (
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/tiers"
)

// permanent reports whether creating a shard on a device will fail again: the device has no room
// for it, or does not support it.
func permanent(err error) bool {
	for _, class := range []error{device.ErrOutOfMemory, device.ErrInvalidArgument, device.ErrNotSupported} {
		if errors.Is(err, class) {
			return true
		}
	}
	return gpubatch.ClassOf(gpubatch.Mark(err)) == ""
}

func outOfMemory(err error) bool {
	refused := (*jobs.Error)(nil)
	return errors.Is(err, device.ErrOutOfMemory) || errors.As(err, &refused) && refused.Code == jobs.CodeDevice
}

// damaged reports whether the store has lost a page or returns other bytes than were written. The
// shard then starts from its log.
func damaged(err error) bool {
	return (errors.Is(err, tiers.ErrCorrupt) || errors.Is(err, tiers.ErrLost)) && !errors.Is(err, gpubatch.ErrDevice)
}

// ErrMoved ends the work on a shard that moves to another device of this agent, or to another
// agent.
var ErrMoved = errors.New("the shard goes to another device")

// errFollowing refuses an answer of an agent without the lease of the shard.
var errFollowing = errors.New("the agent follows the shard and may not answer")

var errParked = errors.New("the shard is parked")

// ErrNotOpen says that a shard without a loop cannot be viewed. It is parked, over, or not started.
var ErrNotOpen = errors.New("the shard is not open here")

// ErrTooSoon says that the last view of a shard was made too short a time ago.
var ErrTooSoon = errors.New("the shard was viewed a moment ago: ask again")
