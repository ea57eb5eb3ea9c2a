package shard

import (
	"context"
	"time"
)

// Follow is the state of a shard that another agent serves and has offered to this one. No entry is
// applied before it is answered, and nothing is written. The loop of the shard and the goroutine
// that waits for the lease use it.
type Follow struct {
	caughtUp chan struct{} // closed by the loop when all answered entries are applied
	promoted chan struct{} // closed when this agent has the lease
	since    time.Time     // when the lease was acquired; read after promoted
	once     bool          // caughtUp is closed; only the loop uses it
}

func newFollow() *Follow {
	return &Follow{caughtUp: make(chan struct{}), promoted: make(chan struct{})}
}

// CaughtUp returns a channel that is closed when all answered entries are applied.
func (f *Follow) CaughtUp() <-chan struct{} { return f.caughtUp }

// Promote tells the loop that the agent has the lease. It is called once.
func (f *Follow) Promote() {
	f.since = time.Now()
	close(f.promoted)
}

// followEvery is the interval between two reads of the end of the answers.
const followEvery = 50 * time.Millisecond

// following returns a channel that is ready when refresh should be called; nil: the agent has the
// lease.
func (t *loop) following() <-chan time.Time {
	if t.follow == nil {
		return nil
	}
	return time.After(followEvery)
}

// refresh reads the end of the answers, and starts to answer when the agent has the lease.
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
		t.log.Info("shard taken over from an agent that has handed it over", "entry", t.at, "answered", last.Ref,
			"took", time.Since(f.since))
		return nil
	}
	if t.at >= last.Ref && !f.once {
		f.once = true
		close(f.caughtUp)
	}
	return nil
}

// admit waits until entry seq may be applied: it is answered, or this agent answers it.
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
