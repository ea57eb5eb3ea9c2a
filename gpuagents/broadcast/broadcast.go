// Package broadcast wakes all goroutines that wait for a change.
package broadcast

import "sync"

// Broadcast wakes all goroutines that wait for a change. Its methods may be called from several
// goroutines. New makes one.
type Broadcast struct {
	mu   sync.Mutex
	sent chan struct{}
}

// New returns a Broadcast that nobody waits for.
func New() *Broadcast { return &Broadcast{sent: make(chan struct{})} }

// Next returns a channel that the next call of Send closes. A caller takes the channel before it
// looks at the state, so that it misses no change.
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
