package pager

import (
	"context"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/tiers"
)

// table is the page table: for each resident page its frame. It also holds the claims: a page that
// is claimed is in shard.moving, and its frame has the mark moving. One goroutine at a time has the
// claim of a page. It alone may move or delete the page, and ends the claim with settle. Pinned
// pages are not claimed, except by checkpoints.save, which leaves them in place.
//
// All methods may be called from several goroutines at once.
type table struct {
	shards []shard
	shift  uint        // of the hash of a page, whose upper bits are its shard
	store  tiers.Store // has the pages that are in no frame; nil without a store
}

// shardBits is the logarithm of the most parts of the page table, each with a lock of its own:
// enough that the pins of a few hundred cores seldom meet. A table of few frames has fewer.
const shardBits = 8

type shard struct {
	mu sync.RWMutex
	// pages has the resident pages. moving has the claimed ones, resident or not; changed is
	// signalled when a claim ends or a mark of a frame is removed.
	pages   map[uint64]*frame
	moving  map[uint64]struct{}
	changed sync.Cond

	// log records pins for the policies, without a lock. Pins that find it full are not recorded.
	logged atomic.Uint32
	log    [64]atomic.Uint64 // page+1, 0 for nothing

	// hits counts the pins of resident pages, by memory tier.
	hits [MaxMemory]atomic.Uint64
}

// rest waits until a page is not claimed. The caller holds mu exclusively; rest releases it while
// it waits.
func (s *shard) rest(ctx context.Context, page uint64) error {
	return s.await(ctx, page, func() bool { return false })
}

// await waits until a page is not claimed or done returns true. It calls done under mu, after every
// change of the shard.
func (s *shard) await(ctx context.Context, page uint64, done func() bool) error {
	if _, moving := s.moving[page]; !moving || done() {
		return nil
	}
	if ctx.Done() != nil {
		defer context.AfterFunc(ctx, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})()
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		if _, moving := s.moving[page]; !moving || done() {
			return nil
		}
		s.changed.Wait()
	}
}

func (t *table) shard(page uint64) *shard {
	return &t.shards[page*0x9e3779b97f4a7c15>>t.shift]
}

func (t *table) frameOf(page uint64) *frame {
	s := t.shard(page)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.pages[page]
}

// pageOf returns the page that was last in a frame, and whether it still is.
func (t *table) pageOf(f *frame) (page uint64, resident bool) {
	page = f.page.Load()
	s := t.shard(page)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return page, s.pages[page] == f
}

func (t *table) resident(page uint64) bool {
	s := t.shard(page)
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, moving := s.moving[page]
	return moving || s.pages[page] != nil
}

// settle ends the claim of a page. The page was in frame from, nil for none, and is in frame f now,
// nil for none. The marks dirty and saving move from frame to frame under the lock, because a
// checkpoint may have set them meanwhile. The caller holds the claim and no lock.
func (t *table) settle(page uint64, from, f *frame) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if from != nil && f != nil && from != f {
		f.dirty.Store(from.dirty.Load())
		f.saving.Store(from.saving.Load())
	}
	if from != nil {
		from.moving = false
	}
	if f != nil {
		f.page.Store(page)
		f.moving = false
		s.pages[page] = f
	} else {
		delete(s.pages, page)
	}
	delete(s.moving, page)
	s.changed.Broadcast()
}

// claim waits until a page is at rest and claims it, for a move into tier m. It returns the frame
// where the page is now, nil for none. It fails with errPinned if the page is pinned, and with
// errSettle if the page is in tier m already: then the page may have to be saved, and the caller
// tries again.
func (t *table) claim(ctx context.Context, page uint64, m *memory) (*frame, error) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.rest(ctx, page); err != nil {
		return nil, err
	}
	f := s.pages[page]
	switch {
	case f == nil:
	case f.memory == m:
		return f, errSettle
	case f.pins.Load() > 0:
		return nil, fmt.Errorf("it is %w in %s", errPinned, f.memory.Name)
	default:
		f.moving = true
	}
	s.moving[page] = struct{}{}
	return f, nil
}

// claimFrom claims a page of a tier, without waiting. It returns the frame of the page, or nil
// without a claim if the page is elsewhere, claimed or pinned.
func (t *table) claimFrom(m *memory, page uint64) *frame {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.pages[page]
	if f == nil || f.memory != m || f.moving || f.pins.Load() > 0 {
		return nil
	}
	if _, moving := s.moving[page]; moving {
		return nil
	}
	f.moving = true
	s.moving[page] = struct{}{}
	return f
}

// claimAbove claims a page that is in a tier below m or in the store, without waiting, and returns
// its frame, nil for the store. claimed is false if the page is elsewhere, claimed, pinned or
// unknown.
func (t *table) claimAbove(page uint64, m *memory) (f *frame, claimed bool) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	f = s.pages[page]
	_, moving := s.moving[page]
	if moving || f != nil && (f.memory.level <= m.level || f.pins.Load() > 0) {
		return nil, false
	}
	if f == nil && (t.store == nil || !t.store.Has(page)) {
		return nil, false
	}
	if f != nil {
		f.moving = true
	}
	s.moving[page] = struct{}{}
	return f, true
}

// mayEvict reports whether a page of a tier is neither claimed nor pinned, and may, unless nil,
// allows its eviction. It calls may under the lock of the shard.
func (t *table) mayEvict(m *memory, page uint64, may func(*frame) bool) bool {
	s := t.shard(page)
	s.mu.RLock()
	defer s.mu.RUnlock()
	f := s.pages[page]
	return f != nil && f.memory == m && !f.moving && f.pins.Load() == 0 && (may == nil || may(f))
}

// drain gives the recorded pins of pages in a tier to its policy, and returns their number. It
// holds the tier's policyMu.
func (t *table) drain(m *memory) (pins int) {
	m.policyMu.Lock()
	defer m.policyMu.Unlock()
	for i := range t.shards {
		s := &t.shards[i]
		n := min(s.logged.Load(), uint32(len(s.log)))
		if n == 0 {
			continue
		}
		left := uint32(0)
		for j := range n {
			page := s.log[j].Swap(0)
			if page == 0 {
				continue
			}
			s.mu.RLock()
			f := s.pages[page-1]
			s.mu.RUnlock()
			switch {
			case f == nil:
			case f.memory == m:
				pins++
				m.policy.Access(page - 1)
			default: // The drain of another tier takes it.
				s.log[left].Store(page)
				left++
			}
		}
		s.logged.Store(left)
	}
	return pins
}

// init makes the table empty, sized for frames, over a store; a nil store has no pages.
func (t *table) init(store tiers.Store, frames int) {
	t.store = store
	n := min(shardBits, max(2, bits.Len(uint(frames))))
	t.shards, t.shift = make([]shard, 1<<n), uint(64-n)
	for i := range t.shards {
		s := &t.shards[i]
		s.pages, s.moving = map[uint64]*frame{}, map[uint64]struct{}{}
		s.changed.L = &s.mu
	}
}

// leaks returns an error, of tiers.ErrLeak, for every page that is still pinned.
func (t *table) leaks() (errs []error) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for page, f := range s.pages {
			if n := f.pins.Load(); n != 0 {
				errs = append(errs, fmt.Errorf("page %d has %d pins: %w", page, n, tiers.ErrLeak))
			}
		}
		s.mu.RUnlock()
	}
	return errs
}
