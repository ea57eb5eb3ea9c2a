package gpuagents

import (
	"context"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
)

// What the entries of a shard may hold from when they are read until they are answered. An entry is less than a message of the queue, and what becomes of it is a
// small multiple of that: 64 MiB keep a device busy that takes 100 times as long for a byte as a GPU does.
const (
	roomBytes   = 64 << 20
	roomEntries = 1024
)

// weigh is what an entry takes of the room: what it holds, or what its answer may, and a thousandth at least.
func weigh(e jobs.Entry) int {
	switch e.Kind {
	case jobs.EntryObserve, jobs.EntryTick, jobs.EntryReset, jobs.EntryEnd:
		return max(len(e.Data), roomBytes/roomEntries)
	}
	return jobs.MaxMessage
}

// room bounds what is under way. One goroutine takes, any gives back.
type room struct {
	mu    sync.Mutex
	used  int
	freed chan struct{} // has a token when something was given back
}

func newRoom() *room { return &room{freed: make(chan struct{}, 1)} }

// take waits until there is room for so many bytes, or nothing else in it.
func (r *room) take(ctx context.Context, n int) error {
	for {
		r.mu.Lock()
		fits := r.used == 0 || r.used+n <= roomBytes
		if fits {
			r.used += n
		}
		r.mu.Unlock()
		if fits {
			return nil
		}
		select {
		case <-r.freed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// taken reports whether anything is under way.
func (r *room) taken() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used > 0
}

// give gives back what was taken.
func (r *room) give(n int) {
	r.mu.Lock()
	r.used -= n
	r.mu.Unlock()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}
