package gpuagents

import (
	"context"
	"runtime/debug"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/retry"
)

// returnDelay is the time in which shards that end together are gathered: to return memory to the
// system, the runtime collects the whole heap.
const returnDelay = time.Second

// freed has a token when a shard has released much memory. The memory is then returned to the
// system, which the runtime by itself does over minutes.
type freed chan struct{}

func (f freed) signal() {
	select {
	case f <- struct{}{}:
	default:
	}
}

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
