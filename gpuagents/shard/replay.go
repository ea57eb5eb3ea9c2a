package shard

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// replay is the progress of a shard whose entries were answered by an earlier process. The
// goroutine that serves the shard moves it; any goroutine reads it.
type replay struct {
	from, to uint64 // it starts after entry from and ends with entry to
	began    time.Time
	at       atomic.Uint64 // the last entry that was replayed
	told     time.Time     // last log line
}

// replayTold is the interval between two log lines about a replay.
const replayTold = 10 * time.Second

func (r *replay) recovery(key string) jobs.Recovery {
	at := r.at.Load()
	return jobs.Recovery{
		Shard: key,
		Entry: at,
		Of:    r.to,
		Rate:  float64(at-r.from) / max(time.Since(r.began).Seconds(), 1e-3),
	}
}

// adoptAgain replays an adoption. One that was refused is left out: the store may have the model
// now. For one that was not, the model must be there. The error names it, and the shard tries
// again.
func (t *loop) adoptAgain(ctx context.Context, e swarms.Entry) error {
	answer, err := t.w.answer(ctx, e.Seq)
	if err != nil || answer.Kind == swarms.EntryRejected {
		return err
	}
	_, err = t.state.Apply(ctx, e)
	if errors.As(err, new(*jobs.Error)) {
		return errors.New(err.Error()) // the entry is not refused: it was applied
	}
	return err
}

func (t *loop) beginReplay(ctx context.Context) {
	if t.at < t.replayed && t.follow == nil { // a followed shard is served by another agent
		t.replay = &replay{from: t.at, to: t.replayed, began: time.Now(), told: time.Now()}
		t.replay.at.Store(t.at)
		t.open.replay.Store(t.replay)
		t.log.Log(ctx, t.open.level(), "replaying the log of the shard", "entry", t.at, "of", t.replayed)
	}
	t.updateMetrics()
}

// progressed records that the log is applied up to t.at.
func (t *loop) progressed(ctx context.Context) {
	if r := t.replay; r != nil {
		r.at.Store(min(t.at, r.to))
		switch now := time.Now(); {
		case t.at >= r.to:
			t.log.Log(ctx, t.open.level(), "the log of the shard is replayed", "entries", r.to-r.from,
				"took", now.Sub(r.began))
			t.replay = nil
			t.open.replay.Store(nil)
		case now.Sub(r.told) >= replayTold:
			r.told = now
			t.log.Info(r.recovery("").String())
		}
	}
	t.updateMetrics()
}

func (t *loop) updateMetrics() {
	var at, of uint64
	if t.replay != nil {
		at, of = t.replay.at.Load(), t.replay.to
	}
	t.gauges.lag(max(t.pipe.end.Load(), t.at)-t.at, at, of)
}

// caughtUp records that the entries up to one that was stored at this time are applied. The time of
// the next entry is not known before it is read, and is not earlier.
func (t *loop) caughtUp(stored time.Time) {
	if t.at >= t.pipe.end.Load() {
		stored = time.Time{}
	}
	t.waits.set(stored)
}

func (t *loop) endReplay() {
	t.open.replay.Store(nil)
	t.gauges.lag(0, 0, 0)
}
