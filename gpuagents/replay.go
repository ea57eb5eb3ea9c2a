package gpuagents

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// replay is how far a shard is whose entries were answered by an earlier process. The goroutine that serves the shard moves it, any goroutine
// reads it.
type replay struct {
	from, to uint64 // it goes on behind entry from and ends with entry to
	began    time.Time
	at       atomic.Uint64 // the last entry that was replayed
	told     time.Time     // when the log said where it is
}

// replayTold is how often the log says where a replay is.
const replayTold = 10 * time.Second

// recovery is what is said of it.
func (r *replay) recovery(key string) jobs.Recovery {
	at := r.at.Load()
	return jobs.Recovery{Shard: key, Entry: at, Of: r.to, Rate: float64(at-r.from) / max(time.Since(r.began).Seconds(), 1e-3)}
}

// beginReplay says that the shard has entries before it that are answered.
func (t *turn) beginReplay(ctx context.Context) {
	if t.at < t.replayed && t.follow == nil { // what is followed another agent serves
		t.replay = &replay{from: t.at, to: t.replayed, began: time.Now(), told: time.Now()}
		t.replay.at.Store(t.at)
		t.seat.replay.Store(t.replay)
		t.log.Log(ctx, t.seat.level(), "replaying the log of the shard", "entry", t.at, "of", t.replayed)
	}
	t.tell()
}

// moved says that the shard has applied its log up to t.at.
func (t *turn) moved(ctx context.Context) {
	if r := t.replay; r != nil {
		r.at.Store(min(t.at, r.to))
		switch now := time.Now(); {
		case t.at >= r.to:
			t.log.Log(ctx, t.seat.level(), "the log of the shard is replayed", "entries", r.to-r.from, "took", now.Sub(r.began))
			t.replay = nil
			t.seat.replay.Store(nil)
		case now.Sub(r.told) >= replayTold:
			r.told = now
			t.log.Info(r.recovery("").String())
		}
	}
	t.tell()
}

// tell brings the metrics up to date.
func (t *turn) tell() {
	var at, of uint64
	if t.replay != nil {
		at, of = t.replay.at.Load(), t.replay.to
	}
	t.lagging.set(max(t.pipe.end.Load(), t.at)-t.at, at, of)
}

// endReplay says that nobody replays the shard here any more.
func (t *turn) endReplay() {
	t.seat.replay.Store(nil)
	t.lagging.set(0, 0, 0)
}
