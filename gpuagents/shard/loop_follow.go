package shard

import (
	"context"
	"time"
)

// following returns a channel that is ready when refresh is to be called; nil: the agent has the
// lease.
func (t *loop) following() <-chan time.Time {
	if t.follow == nil {
		return nil
	}
	return time.After(followEvery)
}

// refresh reads the end of the answers, and begins to answer when the agent has the lease.
func (t *loop) refresh(ctx context.Context) error {
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
	// Nothing else uses these before the first answer is put.
	t.w.last, t.w.answered, t.replayed = last.Seq, last.Ref, last.Ref
	if promoted {
		t.w.following, t.follow = false, nil
		t.open.follow = nil
		t.open.fixed.Store(t.checks != nil) // a shard with claims is never parked
		t.server.o.Metrics.HandedOver("taken")
		t.log.Info(
			"shard taken over from an agent that has handed it over", "entry", t.at, "answered", last.Ref,
			"took", time.Since(f.since),
		)
		return nil
	}
	if t.at >= last.Ref && !f.once {
		f.once = true
		close(f.caughtUp)
	}
	return nil
}

// admit waits until entry number seq may be applied: it is answered, or this agent answers it.
func (t *loop) admit(ctx context.Context, seq uint64) error {
	for t.follow != nil && seq > t.replayed {
		if err := t.refresh(ctx); err != nil {
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
