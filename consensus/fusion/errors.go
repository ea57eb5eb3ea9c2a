package fusion

import "errors"

// The errors of this package; each error it returns wraps one of them, or one of cuda/device.
var (
	// ErrShape: a number of nodes, of agents or of values of an embedding that no fusion can have.
	ErrShape = errors.New("wrong shape")
	// ErrLength: slices of one call whose lengths do not fit together.
	ErrLength = errors.New("lengths do not fit")
	// ErrOverflow: a sum of weights may not fit 64 bits. Nothing was changed: take a snapshot,
	// merge it, and reset.
	ErrOverflow = errors.New("weights overflow")
	// ErrValue: a sum that is not finite. Nothing was changed.
	ErrValue = errors.New("value is not finite")
)
