package gpuagents

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/retry"
)

// returnDelay gathers shards that end together: to return memory to the system, the runtime
// collects the whole heap.
const returnDelay = time.Second

// freed has a token when a shard has released much memory, which is then returned to the system.
// Left to itself, the runtime does that over minutes.
type freed chan struct{}

// signal has returnMemory run. It does not wait.
func (f freed) signal() {
	select {
	case f <- struct{}{}:
	default:
	}
}

// returnMemory returns memory to the system after each signal, until ctx ends.
func (f freed) returnMemory(ctx context.Context) {
	for {
		select {
		case <-f:
		case <-ctx.Done():
			return
		}
		_ = retry.Sleep(ctx, returnDelay)
		select {
		case <-f:
		default:
		}
		debug.FreeOSMemory()
	}
}
