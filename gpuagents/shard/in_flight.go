package shard

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// The bounds of the entries that are read and not answered. The answer of an entry is a small
// multiple of its decoded form: 64 MiB keep a device busy that takes 100 times as long for a byte
// as a GPU does.
const (
	inFlightBytes   = 64 << 20
	inFlightEntries = 1024
)

// weightOf returns the weight of an entry in bytes: the size of its decoded observations, of
// itself, or of its answer, and at least inFlightBytes/inFlightEntries.
func weightOf(e swarms.Entry) int {
	switch e.Kind {
	case swarms.EntryObserve:
		return max(batch.MemoryOf(e.Data), inFlightBytes/inFlightEntries)
	case swarms.EntryTick, swarms.EntryLearn, swarms.EntryReset, swarms.EntryAdopt, swarms.EntryEnd,
		swarms.EntryPrompt, swarms.EntryCancel, swarms.EntryRewind, swarms.EntryFork:
		return max(len(e.Data), inFlightBytes/inFlightEntries)
	}
	return jobs.MaxMessage
}

// inFlight bounds the bytes of the entries that are read and not yet answered. One goroutine
// acquires, any goroutine releases.
type inFlight struct{ bytes *semaphore.Weighted }

func newInFlight() *inFlight { return &inFlight{semaphore.NewWeighted(inFlightBytes)} }

// acquire waits until n bytes are free. An entry larger than the bound waits until it is the only
// one.
func (f *inFlight) acquire(ctx context.Context, n int) error {
	if err := f.bytes.Acquire(ctx, min(int64(n), inFlightBytes)); err != nil {
		return context.Cause(ctx)
	}
	return nil
}

func (f *inFlight) any() bool {
	if !f.bytes.TryAcquire(inFlightBytes) {
		return true
	}
	f.bytes.Release(inFlightBytes)
	return false
}

func (f *inFlight) release(n int) { f.bytes.Release(min(int64(n), inFlightBytes)) }
