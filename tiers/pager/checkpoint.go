package pager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/tiers"
)

// Checkpoint makes every page durable as it is now, with a note, as one epoch, and returns its
// number. Only pages that were written since the last one are put. Pins for writing must have been
// given back: while one is held, Checkpoint fails with tiers.ErrUnavailable and does nothing.
// Others may pin for writing as soon as their page is saved, which they do themselves if it is not
// yet; what they write goes into the next epoch.
//
// After an error the pages are still dirty, and the store is where it was.
func (p *Pager) Checkpoint(ctx context.Context, note []byte) (epoch uint64, err error) {
	if p.closed.Load() {
		return 0, tiers.ErrClosed
	}
	if p.opts.Store == nil {
		return 0, fmt.Errorf("checkpoint without a store: %w", tiers.ErrInvalid)
	}
	p.checkpoint.Lock()
	defer p.checkpoint.Unlock()
	var committed atomic.Uint64
	marked, err := p.mark()
	if err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	defer func() {
		if err != nil {
			p.unmark()
		}
		p.puts.Lock()
		p.marking = false
		p.puts.Unlock()
	}()
	if err := p.saveAll(ctx, marked); err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	note = slices.Clone(note) // A commit that ctx does not wait for may still read it.
	err = p.bounded(ctx, func() (err error) {
		n, err := p.opts.Store.Commit(ctx, note)
		committed.Store(n)
		return err
	})
	epoch = committed.Load()
	var lost *tiers.LostError
	if errors.As(err, &lost) {
		p.redirty(lost.Pages)
	}
	return epoch, err
}

// mark turns every dirty page into one to save, at one moment, and returns their ids in order.
func (p *Pager) mark() ([]uint64, error) {
	p.puts.Lock() // Waits for evictions that put.
	defer p.puts.Unlock()
	for i := range p.table {
		p.table[i].mu.Lock()
		defer p.table[i].mu.Unlock()
	}
	var pinned, marked []uint64
	for i := range p.table {
		for page, f := range p.table[i].pages {
			if f.writes.Load() > 0 {
				pinned = append(pinned, page)
			}
		}
	}
	if len(pinned) > 0 {
		slices.Sort(pinned)
		return nil, fmt.Errorf("%d pages are pinned for writing, %d among them: %w", len(pinned), pinned[0],
			tiers.ErrUnavailable)
	}
	for i := range p.table {
		for page, f := range p.table[i].pages {
			if f.dirty.Load() {
				f.saving.Store(true)
				f.dirty.Store(false)
			}
			if f.saving.Load() {
				marked = append(marked, page)
			}
		}
	}
	p.marking = true
	slices.Sort(marked)
	return marked, nil
}

// savers is how many pages a checkpoint saves at once: one is read from its frame while another is
// written.
const savers = 4

// saveAll saves pages that were marked, and stops at the first error.
func (p *Pager) saveAll(ctx context.Context, pages []uint64) error {
	var next atomic.Int64
	var failed atomic.Bool
	var errs [savers]error
	var wg sync.WaitGroup
	for w := range min(savers, len(pages)) {
		wg.Go(func() {
			for !failed.Load() {
				i := int(next.Add(1)) - 1
				if i >= len(pages) {
					return
				}
				if err := p.save(ctx, pages[i]); err != nil {
					errs[w] = fmt.Errorf("page %d: %w", pages[i], err)
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// save puts a page that is marked, unless somebody did or it was evicted meanwhile, and lets
// writers at it again. Readers go on meanwhile.
func (p *Pager) save(ctx context.Context, page uint64) error {
	s := p.shard(page)
	marked := func() *frame {
		if f := s.pages[page]; f != nil && f.saving.Load() {
			return f
		}
		return nil
	}
	s.mu.Lock()
	err := s.await(ctx, page, func() bool { return marked() == nil }) // Whoever moves it may save it on the way.
	f := marked()
	if err != nil || f == nil {
		s.mu.Unlock()
		return err
	}
	// The pin keeps it in place, and moving keeps a second save away; writers wait because saving
	// is set.
	f.pins.Add(1)
	s.moving[page] = struct{}{}
	s.mu.Unlock()
	_, err = p.put(ctx, f)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		f.saving.Store(false)
	}
	f.pins.Add(-1)
	delete(s.moving, page)
	s.changed.Broadcast()
	return err
}

// saveClaimed saves the marked pages of a group where they are. A checkpoint waits for them, and
// the group may wait for frames that are not free before the checkpoint is over: pages written
// since it began must not leave memory.
func (p *Pager) saveClaimed(ctx context.Context, g *group) error {
	for i, f := range g.from {
		if f == nil || !f.saving.Load() {
			continue
		}
		if _, err := p.put(ctx, f); err != nil {
			return err
		}
		s := p.shard(g.pages[i])
		s.mu.Lock()
		f.saving.Store(false)
		s.changed.Broadcast()
		s.mu.Unlock()
	}
	return nil
}

// unmark makes what a failed checkpoint has not saved dirty again.
func (p *Pager) unmark() {
	for i := range p.table {
		s := &p.table[i]
		s.mu.Lock()
		for _, f := range s.pages {
			if f.saving.Load() {
				f.saving.Store(false)
				f.dirty.Store(true)
			}
		}
		s.mu.Unlock()
	}
}

// redirty makes the next checkpoint put pages again whose sync failed, as far as they are still in
// a frame.
func (p *Pager) redirty(pages []uint64) {
	for _, page := range pages {
		s := p.shard(page)
		s.mu.Lock()
		if f := s.pages[page]; f != nil {
			f.dirty.Store(true)
		}
		s.mu.Unlock()
	}
}

// Note is the note of the last checkpoint. The caller must not change it.
func (p *Pager) Note() []byte {
	if p.opts.Store == nil {
		return nil
	}
	return p.opts.Store.Note()
}

// Pages returns the ids of all pages, in ascending order.
func (p *Pager) Pages() []uint64 {
	var ids []uint64
	if p.opts.Store != nil {
		ids = p.opts.Store.Pages()
	}
	for i := range p.table {
		s := &p.table[i]
		s.mu.RLock()
		for page := range s.pages {
			ids = append(ids, page)
		}
		s.mu.RUnlock()
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}
