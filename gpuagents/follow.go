package gpuagents

import (
	"context"
	"errors"
	"time"
)

// errUnwanted ends the following of a shard whose offer was taken back.
var errUnwanted = errors.New("the shard is not offered to this agent any more")

// errFollowing is an answer of an agent that does not hold the lease of the shard.
var errFollowing = errors.New("the agent follows the shard and may not answer")

// follow is a shard that another agent serves and has offered to this one. It is served as any other, but no entry is applied before it has its answer,
// and nothing is written. The loop of the shard and the goroutine that waits for the lease use it.
type follow struct {
	caughtUp chan struct{} // closed by the loop when all that is answered is applied
	promoted chan struct{} // closed when the lease is this agent's
	since    time.Time     // when the lease came; read behind promoted
	once     bool          // caughtUp is closed; of the loop
}

func newFollow() *follow {
	return &follow{caughtUp: make(chan struct{}), promoted: make(chan struct{})}
}

// followEvery is how often the end of the log of answers is read.
const followEvery = 50 * time.Millisecond

// following is a channel that is ready when follow is to look again; nil where the shard is served.
func (t *turn) following() <-chan time.Time {
	if t.follow == nil {
		return nil
	}
	return time.After(followEvery)
}

// look reads up to where the log is answered, or becomes the one who answers.
func (t *turn) look(ctx context.Context) error {
	f := t.follow
	promoted := false
	select {
	case <-f.promoted:
		promoted = true
	default:
	}
	last, err := t.w.out.Last(ctx)
	if err != nil {
		return err
	}
	t.w.last, t.w.answered, t.replayed = last.Seq, last.Ref, last.Ref // which nothing else touches before the first answer is put
	if promoted {
		t.w.following, t.follow = false, nil
		t.seat.follow = nil
		t.seat.fixed.Store(t.checks != nil) // a shard with claims is never parked
		t.a.o.Metrics.handedOver("taken")
		t.log.Info("shard taken over from an agent that has handed it over", "entry", t.at, "answered", last.Ref, "took", time.Since(f.since))
		return nil
	}
	if t.at >= last.Ref && !f.once {
		f.once = true
		close(f.caughtUp)
	}
	return nil
}

// admit waits until entry number seq may be applied: it has its answer, or this agent gives it.
func (t *turn) admit(ctx context.Context, seq uint64) error {
	for t.follow != nil && seq > t.replayed {
		if err := t.look(ctx); err != nil {
			return err
		}
		if t.follow == nil || seq <= t.replayed {
			return nil
		}
		select {
		case <-time.After(followEvery):
		case <-t.follow.promoted:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}
