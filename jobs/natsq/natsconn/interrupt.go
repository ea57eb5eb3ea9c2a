package natsconn

import (
	"context"
	"sync"
)

// interrupts ends the contexts of the calls in progress. The zero value is ready. Its methods may
// be called from several goroutines.
type interrupts struct {
	mu     sync.Mutex
	calls  map[*context.CancelCauseFunc]struct{}
	closed error // the cause of all later calls; nil: none
}

// add returns a context that ends with ctx or with the next interrupt. The caller calls remove when
// the call has ended.
func (i *interrupts) add(ctx context.Context) (call context.Context, remove func()) {
	call, cancel := context.WithCancelCause(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed != nil {
		cancel(i.closed)
		return call, func() {}
	}
	if i.calls == nil {
		i.calls = map[*context.CancelCauseFunc]struct{}{}
	}
	key := &cancel
	i.calls[key] = struct{}{}
	return call, func() {
		i.mu.Lock()
		delete(i.calls, key)
		i.mu.Unlock()
		cancel(nil)
	}
}

// interrupt ends all calls in progress with a cause.
func (i *interrupts) interrupt(cause error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.end(cause)
}

func (i *interrupts) end(cause error) {
	for cancel := range i.calls {
		(*cancel)(cause)
	}
	clear(i.calls)
}

// close ends all calls in progress and all later ones with a cause.
func (i *interrupts) close(cause error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.closed = cause
	i.end(cause)
}
