package statelog

import (
	"context"
	"sync"
)

// Answered is the number of the last entry of a log that has its answer. Its methods may be called
// from several goroutines, and Await from one at a time.
type Answered struct {
	mu      sync.Mutex
	entry   uint64
	changed chan struct{} // the entry has grown
}

// NewAnswered returns an Answered for a log whose entries up to the given one have their answers.
func NewAnswered(entry uint64) *Answered {
	return &Answered{entry: entry, changed: make(chan struct{}, 1)}
}

// Entry returns the number of the last entry that has its answer.
func (a *Answered) Entry() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.entry
}

// Reach notes that all entries up to one have their answers.
func (a *Answered) Reach(entry uint64) {
	a.mu.Lock()
	a.entry = entry
	a.mu.Unlock()
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// Await returns when an entry has its answer, or with the cause of ctx.
func (a *Answered) Await(ctx context.Context, entry uint64) error {
	for {
		if a.Entry() >= entry {
			return nil
		}
		select {
		case <-a.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
