package pages

import (
	"context"
	"sync"
	"time"
)

// Broadcast wakes all goroutines that wait for a change. Its methods may be called from several
// goroutines. NewBroadcast makes one.
type Broadcast struct {
	mu   sync.Mutex
	sent chan struct{}
}

// NewBroadcast returns a Broadcast that nobody waits for.
func NewBroadcast() *Broadcast { return &Broadcast{sent: make(chan struct{})} }

// Next returns a channel that the next call of Send closes. A caller takes the channel before it
// reads the state, so that it misses no change.
func (b *Broadcast) Next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}

// Send wakes the goroutines that wait.
func (b *Broadcast) Send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.sent)
	b.sent = make(chan struct{})
}

// Await calls ready until it returns true: at once, after each Send, and at each poll interval.
// late is true once patience has passed. The error is the cause of the end of ctx.
func (b *Broadcast) Await(ctx context.Context, patience, poll time.Duration, ready func(late bool) bool) error {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for late := false; ; {
		next := b.Next()
		if ready(late) {
			return nil
		}
		select {
		case <-next:
		case <-tick.C:
		case <-timer.C:
			late = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
