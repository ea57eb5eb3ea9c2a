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

// Checkpoint makes every page durable as it is now, with a note, as one epoch, and returns its number. Only pages that
// were written since the last one are put. Pins for writing must have been given back: while one is held, Checkpoint
// fails with tiers.ErrUnavailable and does nothing. Others may pin for writing as soon as their page is saved, which
// they do themselves if it is not yet; what they write goes into the next epoch.
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
		return nil, fmt.Errorf("%d pages are pinned for writing, %d among them: %w", len(pinned), pinned[0], tiers.ErrUnavailable)
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

// savers is how many pages a checkpoint saves at once: one is read from its frame while another is written.
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
				if err := p.savePage(ctx, pages[i]); err != nil {
					errs[w] = fmt.Errorf("page %d: %w", pages[i], err)
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// savePage saves a page that was marked, unless somebody did or it was evicted meanwhile.
func (p *Pager) savePage(ctx context.Context, page uint64) error {
	s := p.shard(page)
	s.mu.Lock()
	err := s.rest(ctx, page)
	f := s.pages[page]
	s.mu.Unlock()
	if err != nil || f == nil {
		return err
	}
	return p.save(ctx, f)
}

// save puts a page that is marked, and lets writers at it again. Readers go on meanwhile.
func (p *Pager) save(ctx context.Context, f *frame) error {
	page := f.page.Load()
	s := p.shard(page)
	s.mu.Lock()
	if err := s.rest(ctx, page); err != nil {
		s.mu.Unlock()
		return err
	}
	f = s.pages[page]
	if f == nil || !f.saving.Load() {
		s.mu.Unlock()
		return nil
	}
	// The pin keeps it in place, and moving keeps a second save away; writers wait because saving is set.
	f.pins.Add(1)
	s.moving[page] = struct{}{}
	s.mu.Unlock()
	_, err := p.put(ctx, f)
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

// redirty makes the next checkpoint put pages again whose sync failed, as far as they are still in a frame.
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
