package memory

import (
	"context"
	"fmt"
	"sync"
)

// Budget is an amount of memory that several goroutines share. A nil Budget has no limit.
type Budget struct {
	limit int64

	mu      sync.Mutex
	used    int64
	waiting []*waiter // first come, first served
}

type waiter struct {
	n     int64
	ready chan struct{} // closed when it has got n
}

// NewBudget returns a budget of limit bytes.
func NewBudget(limit int64) *Budget { return &Budget{limit: limit} }

// Limit returns the bytes of the whole budget; 0 of one without a limit.
func (b *Budget) Limit() int64 {
	if b == nil {
		return 0
	}
	return b.limit
}

// Used returns the bytes that are taken.
func (b *Budget) Used() int64 {
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Try takes n bytes and reports whether they were there. It does not overtake those who wait.
func (b *Budget) Try(n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 || n > b.limit-b.used {
		return false
	}
	b.used += n
	return true
}

// Take takes n bytes as soon as they are free. It returns ErrTooLarge if n is more than the whole
// budget, and the cause of ctx when that ends first.
func (b *Budget) Take(ctx context.Context, n int64) error {
	if b == nil || b.Try(n) {
		return nil
	}
	if n > b.limit {
		return fmt.Errorf("%d bytes of %d: %w", n, b.limit, ErrTooLarge)
	}
	w := &waiter{n: n, ready: make(chan struct{})}
	b.mu.Lock()
	b.waiting = append(b.waiting, w)
	b.serve()
	b.mu.Unlock()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.ready: // between the end of ctx and the lock
		b.used -= n
	default:
		for i, o := range b.waiting {
			if o == w {
				b.waiting = append(b.waiting[:i], b.waiting[i+1:]...)
				break
			}
		}
	}
	b.serve()
	return context.Cause(ctx)
}

// Give gives n bytes back.
func (b *Budget) Give(n int64) {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	b.serve()
}

// serve hands what is there to those who wait. b.mu is held.
func (b *Budget) serve() {
	for len(b.waiting) > 0 && b.waiting[0].n <= b.limit-b.used {
		w := b.waiting[0]
		b.waiting = b.waiting[1:]
		b.used += w.n
		close(w.ready)
	}
}
