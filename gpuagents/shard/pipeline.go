package shard

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// A loop has stages before and after it: the pipeline reads entries, decodes them, and merges what
// is there while the device works; the appender encodes answers and appends them. Only the loop
// uses the state.

type logEntry struct {
	swarms.Entry
	observed state.Observations // for an entry of observations
	refused  error              // why the observations are refused
	weight   int                // its bytes in flight
	ended    error              // why no entry follows; there is no entry

	// When reading and decoding started and ended; zero: the entry is not decoded.
	fetching, fetched, decoding, decoded time.Time
}

func (i *logEntry) observes() bool { return i.Kind == swarms.EntryObserve }

func (i *logEntry) rows() int {
	if !i.observes() || i.refused != nil {
		return 0
	}
	return i.observed.Len()
}

// entryBatch is what the loop applies at once: consecutive entries with observations, or one entry
// of another kind.
type entryBatch struct {
	entries []logEntry
	merged  state.Batch // nil: an entry of another kind
	rows    int         // in merged
	full    bool        // it was cut before an existing entry of observations
}

// maxMerged bounds the entries of a batch. If all entries address the same group, their launches
// fill the stream eight times.
const maxMerged = 256

// accepts reports whether an entry may be added to a batch of at most most observations.
func (s *entryBatch) accepts(i *logEntry, most int) bool {
	if s.merged == nil || !i.observes() || i.ended != nil {
		return false
	}
	s.full = len(s.entries) == maxMerged || s.rows+i.rows() > most
	return !s.full
}

func (s *entryBatch) add(i logEntry) {
	if i.refused == nil {
		s.merged.Add(i.observed)
	}
	s.rows += i.rows()
	s.entries = append(s.entries, i)
}

type pipeline struct {
	next     chan *entryBatch
	limit    atomic.Int64  // maximum number of observations of a batch of several entries
	end      atomic.Uint64 // the last known entry of the log
	state    state.State
	inFlight *inFlight
	cancel   context.CancelFunc
	ended    sync.WaitGroup
}

// openPipeline reads until stop is called or reading fails; the last batch has the error. It closes
// the reader.
func openPipeline(ctx context.Context, r swarms.Reader, of state.State, bound *inFlight) *pipeline {
	ctx, cancel := context.WithCancel(ctx)
	p := &pipeline{next: make(chan *entryBatch), state: of, inFlight: bound, cancel: cancel}
	items := make(chan (<-chan logEntry), 16) // decoded while the merging goroutine merges
	p.ended.Go(func() { p.read(ctx, r, items) })
	p.ended.Go(func() { p.merge(ctx, items) })
	return p
}

func (p *pipeline) stop() {
	p.cancel()
	p.ended.Wait()
}

// leastApart is the minimum size, in bytes, of an entry that is decoded in a separate goroutine, so
// that several cores decode a log. One core decodes some 50 million observations a second.
const leastApart = 16 << 10

// read reads and decodes entries until ctx ends or reading fails. It sends a channel for each
// entry, in the order of the log. The entry follows on its channel when it is decoded.
func (p *pipeline) read(ctx context.Context, r swarms.Reader, to chan<- (<-chan logEntry)) {
	defer r.Close()
	waits := true // the wait for a new entry is not counted as work
	for {
		began := time.Now()
		e, err := r.Next(ctx)
		i := logEntry{Entry: e, weight: weightOf(e), fetching: began, fetched: time.Now()}
		if waits {
			i.fetching = i.fetched
		}
		waits = e.Behind == 0
		p.end.Store(e.Seq + e.Behind)
		if err == nil {
			err = p.inFlight.acquire(ctx, i.weight)
		}
		decoded := make(chan logEntry, 1)
		switch {
		case err != nil:
			decoded <- logEntry{ended: err}
		case e.Kind != swarms.EntryObserve:
			decoded <- i
		case len(e.Data) < leastApart:
			decoded <- p.decode(i)
		default:
			p.ended.Go(func() { decoded <- p.decode(i) })
		}
		select {
		case to <- decoded:
		case <-ctx.Done(): // the loop handles the end of ctx
			return
		}
		if err != nil {
			return
		}
	}
}

// decode decodes the observations of an entry. Several goroutines call it.
func (p *pipeline) decode(i logEntry) logEntry {
	i.decoding = time.Now()
	i.observed, i.refused = p.state.Decode(i.Data)
	i.decoded = time.Now()
	return i
}

// merge hands on batches. It adds entries to a batch until the loop is ready for it.
func (p *pipeline) merge(ctx context.Context, items <-chan (<-chan logEntry)) {
	var open *entryBatch
	var held *logEntry       // the first entry of the next batch
	var next <-chan logEntry // the entry that is decoded next; nil: none
	for {
		if open == nil && held != nil {
			open, held = p.begin(*held), nil
		}
		in, out := items, p.next
		if held != nil || next != nil {
			in = nil
		}
		if open == nil {
			out = nil
		}
		i, decoded := received(next) // the loop gets what is decoded in one batch
		if !decoded {
			select {
			case out <- open:
				open = nil
				continue
			case next = <-in:
				continue
			case i = <-next:
			case <-ctx.Done():
				return
			}
		}
		next = nil
		switch {
		case open == nil:
			open = p.begin(i)
		case open.accepts(&i, int(p.limit.Load())):
			open.add(i)
		default:
			held = &i
		}
	}
}

// received returns the element of a channel, which may be nil, without a wait.
func received(from <-chan logEntry) (i logEntry, ok bool) {
	select {
	case i = <-from:
		return i, true
	default:
		return i, false
	}
}

func (p *pipeline) begin(i logEntry) *entryBatch {
	if !i.observes() || i.ended != nil {
		return &entryBatch{entries: []logEntry{i}}
	}
	s := &entryBatch{merged: p.state.NewBatch()}
	s.add(i)
	return s
}
