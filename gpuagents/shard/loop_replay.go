package shard

import (
	"context"
	"time"
)

// beginReplay starts the replay of the entries that are answered and not applied.
func (t *loop) beginReplay(ctx context.Context) {
	if t.at < t.replayed && t.follow == nil { // a followed shard is served by another agent
		t.replay = &replay{from: t.at, to: t.replayed, began: time.Now(), told: time.Now()}
		t.replay.at.Store(t.at)
		t.open.replay.Store(t.replay)
		t.log.Log(ctx, t.open.level(), "replaying the log of the shard", "entry", t.at, "of", t.replayed)
	}
	t.updateMetrics()
}

// progressed notes that the log is applied up to t.at.
func (t *loop) progressed(ctx context.Context) {
	if r := t.replay; r != nil {
		r.at.Store(min(t.at, r.to))
		switch now := time.Now(); {
		case t.at >= r.to:
			t.log.Log(
				ctx, t.open.level(), "the log of the shard is replayed", "entries", r.to-r.from, "took",
				now.Sub(r.began),
			)
			t.replay = nil
			t.open.replay.Store(nil)
		case now.Sub(r.told) >= replayTold:
			r.told = now
			t.log.Info(r.recovery("").String())
		}
	}
	t.updateMetrics()
}

// updateMetrics updates the gauges of lag and replay.
func (t *loop) updateMetrics() {
	var at, of uint64
	if t.replay != nil {
		at, of = t.replay.at.Load(), t.replay.to
	}
	t.lagging.set(max(t.pipe.end.Load(), t.at)-t.at, at, of)
}

// caughtUp notes that the entries up to one of a time are applied. The time of the next entry is not
// known before it is read, and is not earlier.
func (t *loop) caughtUp(stored time.Time) {
	if t.at >= t.pipe.end.Load() {
		stored = time.Time{}
	}
	t.waits.set(stored)
}

// endReplay removes the shard from the gauges of lag and replay.
func (t *loop) endReplay() {
	t.open.replay.Store(nil)
	t.lagging.set(0, 0, 0)
}
