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

// checkpoints makes the content of a Pager durable, one checkpoint at a time. A checkpoint marks
// every dirty page as saving at one moment, puts the marked pages while the Pager is in use, and
// commits the store.
type checkpoints struct {
	table *table
	puts  *putter
	store tiers.Store

	// running is held by the Checkpoint that runs, and by Delete.
	running sync.Mutex
	// gate is held shared while a dirty page is put, and exclusively while a checkpoint marks its
	// pages.
	gate sync.RWMutex
	// marking is true from the mark of a checkpoint to its commit. Dirty pages must not be put
	// then, because their writes came after the mark and belong to the next epoch. Guarded by gate.
	marking bool
}

// run makes a checkpoint, see Pager.Checkpoint. The store is not nil.
func (cp *checkpoints) run(ctx context.Context, note []byte) (epoch uint64, err error) {
	cp.running.Lock()
	defer cp.running.Unlock()
	var committed atomic.Uint64
	marked, err := cp.mark()
	if err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	defer func() {
		if err != nil {
			cp.unmark()
		}
		cp.gate.Lock()
		cp.marking = false
		cp.gate.Unlock()
	}()
	if err := cp.saveAll(ctx, marked); err != nil {
		return 0, fmt.Errorf("checkpoint: %w", err)
	}
	note = slices.Clone(note) // A commit that ctx does not wait for may still read it.
	err = bounded(ctx, func() (err error) {
		n, err := cp.store.Commit(ctx, note)
		committed.Store(n)
		return err
	})
	epoch = committed.Load()
	var lost *tiers.LostError
	if errors.As(err, &lost) {
		cp.redirty(lost.Pages)
	}
	return epoch, err
}

// mark turns every dirty page into one to save, at one moment, and returns the ids of all pages to
// save, in ascending order. It fails if a page is pinned for writing, and changes nothing then.
func (cp *checkpoints) mark() ([]uint64, error) {
	cp.gate.Lock() // Waits for evictions that put.
	defer cp.gate.Unlock()
	for i := range cp.table.shards {
		cp.table.shards[i].mu.Lock()
		defer cp.table.shards[i].mu.Unlock()
	}
	var pinned, marked []uint64
	for i := range cp.table.shards {
		for page, f := range cp.table.shards[i].pages {
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
	for i := range cp.table.shards {
		for page, f := range cp.table.shards[i].pages {
			if f.dirty.Load() {
				f.saving.Store(true)
				f.dirty.Store(false)
			}
			if f.saving.Load() {
				marked = append(marked, page)
			}
		}
	}
	cp.marking = true
	slices.Sort(marked)
	return marked, nil
}

// savers is the number of pages that a checkpoint saves at once: some are read from their frames
// while others are written.
const savers = 4

// saveAll saves marked pages, and stops at the first error.
func (cp *checkpoints) saveAll(ctx context.Context, pages []uint64) error {
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
				if err := cp.save(ctx, pages[i]); err != nil {
					errs[w] = fmt.Errorf("page %d: %w", pages[i], err)
					failed.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs[:]...)
}

// save puts a marked page into the store and removes the mark, after which it may be pinned for
// writing. It does nothing if the page was saved or evicted meanwhile. The page may be pinned for
// reading all the time. The caller holds neither a claim nor a lock.
func (cp *checkpoints) save(ctx context.Context, page uint64) error {
	s := cp.table.shard(page)
	marked := func() *frame {
		if f := s.pages[page]; f != nil && f.saving.Load() {
			return f
		}
		return nil
	}
	s.mu.Lock()
	err := s.await(ctx, page, func() bool { return marked() == nil }) // A move may save it on the way.
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
	_, err = cp.puts.put(ctx, f)
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

// saveClaimed saves the marked pages of a group where they are, before the caller waits for frames.
// The running checkpoint waits for these pages, and frames may come free only after the checkpoint,
// since pages that were written during it must not leave memory.
func (cp *checkpoints) saveClaimed(ctx context.Context, g *group) error {
	for i, f := range g.from {
		if f == nil || !f.saving.Load() {
			continue
		}
		if _, err := cp.puts.put(ctx, f); err != nil {
			return err
		}
		s := cp.table.shard(g.pages[i])
		s.mu.Lock()
		f.saving.Store(false)
		s.changed.Broadcast()
		s.mu.Unlock()
	}
	return nil
}

// unmark makes the pages that a failed checkpoint has not saved dirty again.
func (cp *checkpoints) unmark() {
	for i := range cp.table.shards {
		s := &cp.table.shards[i]
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

// redirty marks pages as dirty whose sync failed, as far as they are still in a frame, so that the
// next checkpoint puts them again.
func (cp *checkpoints) redirty(pages []uint64) {
	for _, page := range pages {
		s := cp.table.shard(page)
		s.mu.Lock()
		if f := s.pages[page]; f != nil {
			f.dirty.Store(true)
		}
		s.mu.Unlock()
	}
}
