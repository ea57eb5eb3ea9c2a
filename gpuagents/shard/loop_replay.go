package shard

import (
	"context"
	"time"
)

// beginReplay says that the shard has entries before it that are answered.
func (t *loop) beginReplay(ctx context.Context) {
	if t.at < t.replayed && t.follow == nil { // what is followed another agent serves
		t.replay = &replay{from: t.at, to: t.replayed, began: time.Now(), told: time.Now()}
		t.replay.at.Store(t.at)
		t.open.replay.Store(t.replay)
		t.log.Log(ctx, t.open.level(), "replaying the log of the shard", "entry", t.at, "of", t.replayed)
	}
	t.updateMetrics()
}

// moved says that the shard has applied its log up to t.at.
func (t *loop) progressed(ctx context.Context) {
	if r := t.replay; r != nil {
		r.at.Store(min(t.at, r.to))
		switch now := time.Now(); {
		case t.at >= r.to:
			t.log.Log(ctx, t.open.level(), "the log of the shard is replayed", "entries", r.to-r.from, "took", now.Sub(r.began))
			t.replay = nil
			t.open.replay.Store(nil)
		case now.Sub(r.told) >= replayTold:
			r.told = now
			t.log.Info(r.recovery("").String())
		}
	}
	t.updateMetrics()
}

// tell brings the metrics up to date.
func (t *loop) updateMetrics() {
	var at, of uint64
	if t.replay != nil {
		at, of = t.replay.at.Load(), t.replay.to
	}
	t.lagging.set(max(t.pipe.end.Load(), t.at)-t.at, at, of)
}

// endReplay says that nobody replays the shard here any more.
func (t *loop) endReplay() {
	t.open.replay.Store(nil)
	t.lagging.set(0, 0, 0)
}
