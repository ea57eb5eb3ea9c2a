package shard

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/jobs"
)

// A shard's loop has others work before and behind it: a pipeline reads entries, decodes them, and merges what is there while the device works; answers
// encodes what the loop has done and appends it. Only the loop touches the population.

// item is an entry on its way through a shard.
type logEntry struct {
	jobs.Entry
	observed state.Observations // of an entry of observations
	refused  error              // why that is none
	weight   int                // of its place in the room
	ended    error              // no entry: why none follows
}

// rows is how many observations an item has.
func (i *logEntry) rows() int {
	if i.Kind != jobs.EntryObserve || i.refused != nil {
		return 0
	}
	return i.observed.Len()
}

// stretch is what the loop applies at once: consecutive entries of observations, or one entry of another kind.
type entryBatch struct {
	entries []logEntry
	merged  state.Batch // nil: an entry of another kind
	rows    int         // in merged
	full    bool        // it ends before an entry of observations that was there too
}

// mostMerged bounds the entries of a stretch, whatever they hold: their launches, if all address the same group, fill the stream eight times.
const maxMerged = 256

// takes says whether an item may be put behind the others of a stretch, so that it has so many observations at most.
func (s *entryBatch) accepts(i *logEntry, most int) bool {
	if s.merged == nil || i.Kind != jobs.EntryObserve || i.ended != nil {
		return false
	}
	s.full = len(s.entries) == maxMerged || s.rows+i.rows() > most
	return !s.full
}

// add puts an item of a kind that a stretch takes behind the others.
func (s *entryBatch) add(i logEntry) {
	if i.refused == nil {
		s.merged.Add(i.observed)
	}
	s.rows += i.rows()
	s.entries = append(s.entries, i)
}

// pipeline is the part of a shard before its loop.
type pipeline struct {
	next     chan *entryBatch
	limit    atomic.Int64  // observations of a stretch of several entries
	end      atomic.Uint64 // the last entry of the log, as far as it is known
	state    state.State
	inFlight *inFlight
	cancel   context.CancelFunc
	ended    sync.WaitGroup
}

// openPipeline reads until stop is called or reading fails, which the last stretch says. It closes the reader.
func openPipeline(ctx context.Context, r jobs.Reader, of state.State, bound *inFlight) *pipeline {
	ctx, cancel := context.WithCancel(ctx)
	p := &pipeline{next: make(chan *entryBatch), state: of, inFlight: bound, cancel: cancel}
	items := make(chan logEntry, 16) // decoded while the merging goroutine merges
	p.ended.Go(func() { p.read(ctx, r, items) })
	p.ended.Go(func() { p.merge(ctx, items) })
	return p
}

// stop ends the reading and waits for it.
func (p *pipeline) stop() {
	p.cancel()
	p.ended.Wait()
}

func (p *pipeline) read(ctx context.Context, r jobs.Reader, to chan<- logEntry) {
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		i := logEntry{Entry: e, weight: weightOf(e)}
		p.end.Store(e.Seq + e.Behind)
		if err == nil {
			err = p.inFlight.acquire(ctx, i.weight)
		}
		switch {
		case err != nil:
			i = logEntry{ended: err}
		case e.Kind == jobs.EntryObserve:
			i.observed, i.refused = p.state.Decode(e.Data)
		}
		select {
		case to <- i:
		case <-ctx.Done(): // the loop looks at that too
			return
		}
		if err != nil {
			return
		}
	}
}

// merge hands stretches on. One that the loop is not ready for takes what comes meanwhile.
func (p *pipeline) merge(ctx context.Context, items <-chan logEntry) {
	var open *entryBatch
	var held *logEntry // the first of the next one
	for {
		if open == nil && held != nil {
			open, held = p.begin(*held), nil
		}
		in, out := items, p.next
		if held != nil {
			in = nil
		}
		if open == nil {
			out = nil
		}
		select {
		case out <- open:
			open = nil
		case i := <-in:
			switch {
			case open == nil:
				open = p.begin(i)
			case open.accepts(&i, int(p.limit.Load())):
				open.add(i)
			default:
				held = &i
			}
		case <-ctx.Done():
			return
		}
	}
}

// begin is a stretch that begins with an item.
func (p *pipeline) begin(i logEntry) *entryBatch {
	if i.Kind != jobs.EntryObserve || i.ended != nil {
		return &entryBatch{entries: []logEntry{i}}
	}
	s := &entryBatch{merged: p.state.NewBatch()}
	s.add(i)
	return s
}
