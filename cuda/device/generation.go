package device

import "sync/atomic"

var generations atomic.Uint64

// NextGeneration is a number for Properties.Generation. Implementations of Device call it once for
// each they open.
func NextGeneration() uint64 { return generations.Add(1) }
