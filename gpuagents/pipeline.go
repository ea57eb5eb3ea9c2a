package gpuagents

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
type item struct {
	jobs.Entry
	observed state.Observations // of an entry of observations
	refused  error              // why that is none
	weight   int                // of its place in the room
	ended    error              // no entry: why none follows
}

// rows is how many observations an item has.
func (i *item) rows() int {
	if i.Kind != jobs.EntryObserve || i.refused != nil {
		return 0
	}
	return i.observed.Len()
}

// stretch is what the loop applies at once: consecutive entries of observations, or one entry of another kind.
type stretch struct {
	items  []item
	merged state.Batch // nil: an entry of another kind
	rows   int         // in merged
	full   bool        // it ends before an entry of observations that was there too
}

// mostMerged bounds the entries of a stretch, whatever they hold: their launches, if all address the same group, fill the stream eight times.
const mostMerged = 256

// takes says whether an item may be put behind the others of a stretch, so that it has so many observations at most.
func (s *stretch) takes(i *item, most int) bool {
	if s.merged == nil || i.Kind != jobs.EntryObserve || i.ended != nil {
		return false
	}
	s.full = len(s.items) == mostMerged || s.rows+i.rows() > most
	return !s.full
}

// add puts an item of a kind that a stretch takes behind the others.
func (s *stretch) add(i item) {
	if i.refused == nil {
		s.merged.Add(i.observed)
	}
	s.rows += i.rows()
	s.items = append(s.items, i)
}

// pipeline is the part of a shard before its loop.
type pipeline struct {
	next   chan *stretch
	most   atomic.Int64  // observations of a stretch of several entries
	end    atomic.Uint64 // the last entry of the log, as far as it is known
	of     state.State
	room   *room
	cancel context.CancelFunc
	ended  sync.WaitGroup
}

// openPipeline reads until stop is called or reading fails, which the last stretch says. It closes the reader.
func openPipeline(ctx context.Context, r jobs.Reader, of state.State, room *room) *pipeline {
	ctx, cancel := context.WithCancel(ctx)
	p := &pipeline{next: make(chan *stretch), of: of, room: room, cancel: cancel}
	items := make(chan item, 16) // decoded while the merging goroutine merges
	p.ended.Go(func() { p.read(ctx, r, items) })
	p.ended.Go(func() { p.merge(ctx, items) })
	return p
}

// stop ends the reading and waits for it.
func (p *pipeline) stop() {
	p.cancel()
	p.ended.Wait()
}

func (p *pipeline) read(ctx context.Context, r jobs.Reader, to chan<- item) {
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		i := item{Entry: e, weight: weigh(e)}
		p.end.Store(e.Seq + e.Behind)
		if err == nil {
			err = p.room.take(ctx, i.weight)
		}
		switch {
		case err != nil:
			i = item{ended: err}
		case e.Kind == jobs.EntryObserve:
			i.observed, i.refused = p.of.Decode(e.Data)
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
func (p *pipeline) merge(ctx context.Context, items <-chan item) {
	var open *stretch
	var held *item // the first of the next one
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
			case open.takes(&i, int(p.most.Load())):
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
func (p *pipeline) begin(i item) *stretch {
	if i.Kind != jobs.EntryObserve || i.ended != nil {
		return &stretch{items: []item{i}}
	}
	s := &stretch{merged: p.of.NewBatch()}
	s.add(i)
	return s
}
