package shard

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// ledger is a log in memory that keeps to what swarms.Log promises, fences included. Its calls can
// be made to fail and to wait.
type ledger struct {
	mu      sync.Mutex
	all     []swarms.Entry
	appends []int // how many entries each call had
	fail    error // of Append
	gone    error // of Last and Read
	enter   chan struct{}
	leave   chan struct{}    // nil: Append does not wait
	readers int              // that are open
	waits   bool             // a reader waits at the end, else it fails there
	unread  map[uint64]error // of Read from an entry on
	torn    uint64           // the entry that Next fails on
	short   int              // how often Last returns the entry before the last one
}

func (l *ledger) Create(context.Context, ...swarms.Consistency) error { return nil }

func (l *ledger) Delete(context.Context) error { return nil }

func (l *ledger) Trim(context.Context, uint64) error { return nil }

// Append implements swarms.Log.
func (l *ledger) Append(ctx context.Context, after uint64, all ...swarms.Entry) error {
	if l.leave != nil {
		l.enter <- struct{}{}
		<-l.leave
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case l.fail != nil:
		return l.fail
	case after != uint64(len(l.all)):
		return fmt.Errorf("behind entry %d of %d: %w", after, len(l.all), jobs.ErrFenced)
	}
	for _, e := range all {
		e.Seq = uint64(len(l.all) + 1)
		l.all = append(l.all, e)
	}
	l.appends = append(l.appends, len(all))
	return nil
}

// Last implements swarms.Log.
func (l *ledger) Last(context.Context) (swarms.Entry, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone != nil || len(l.all) == 0 {
		return swarms.Entry{}, l.gone
	}
	if l.short > 0 && len(l.all) > 1 {
		l.short--
		return l.all[len(l.all)-2], nil
	}
	return l.all[len(l.all)-1], nil
}

// Read implements swarms.Log.
func (l *ledger) Read(_ context.Context, from uint64) (swarms.Reader, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone != nil {
		return nil, l.gone
	}
	if err := l.unread[from]; err != nil {
		return nil, err
	}
	l.readers++
	return &ledgerReader{l, from, false}, nil
}

type ledgerReader struct {
	of     *ledger
	next   uint64
	closed bool
}

// Next implements swarms.Reader. Nothing is appended while it is used.
func (r *ledgerReader) Next(ctx context.Context) (swarms.Entry, error) {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if r.next > uint64(len(r.of.all)) {
		if r.of.waits {
			r.of.mu.Unlock()
			<-ctx.Done()
			r.of.mu.Lock()
			return swarms.Entry{}, context.Cause(ctx)
		}
		return swarms.Entry{}, fmt.Errorf("entry %d of %d: %w", r.next, len(r.of.all), jobs.ErrNotFound)
	}
	if r.next == r.of.torn {
		return swarms.Entry{}, jobs.ErrUnavailable
	}
	r.next++
	return r.of.all[r.next-2], nil
}

// Close implements swarms.Reader.
func (r *ledgerReader) Close() {
	r.of.mu.Lock()
	defer r.of.mu.Unlock()
	if !r.closed {
		r.closed = true
		r.of.readers--
	}
}

// entries is what a log has.
func (l *ledger) entries() []swarms.Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}
