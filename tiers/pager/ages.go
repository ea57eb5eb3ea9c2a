package pager

// This file remembers when the pages of a store were last in use, in a compact table.
//
// A page manager asks it which pages to move between the tiers of its store. It records of each
// page in which tier it was last seen, when it was last in use, and whether it was read again soon
// after it had left memory.

import (
	"math/bits"
	"sync"
)

// ageTable records pages. Its zero value is empty. All methods may be called from several goroutines
// at once. Times are numbers in units of the caller's choice; 0 is an unknown time.
//
// It takes 12 bytes a slot and between 15 and 19 a page: open addressing in Go slices, which grow
// by a quarter at a time. Each of its 64 shards has a lock, under which no other lock is taken.
type ageTable struct{ shards [64]ageShard }

type ageShard struct {
	mu    sync.Mutex
	pages []uint64 // page+1, 0 for a free slot
	marks []ageMark
	n     int
}

// ageMark is the record of a page: its tier in 4 bits, one bit for hot, and the time in 27.
type ageMark uint32

const (
	hotBit ageMark = 1 << 27
	// MaxTime is the last time that a Mark can hold; later ones are recorded as it.
	MaxTime = uint32(hotBit - 1)
)

func newMark(tier int, hot bool, at uint32) ageMark {
	m := ageMark(tier)<<28 | ageMark(min(at, MaxTime))
	if hot {
		m |= hotBit
	}
	return m
}

// Tier returns the tier of the store in which the page was last seen, from 0 to 15.
func (m ageMark) Tier() int { return int(m >> 28) }

func (m ageMark) Hot() bool { return m&hotBit != 0 }

// At returns the time of the last use; 0 is unknown.
func (m ageMark) At() uint32 { return uint32(m) & MaxTime }

func (t *ageTable) shard(page uint64) *ageShard { return &t.shards[page*0x9e3779b97f4a7c15>>58] }

// home returns the slot of a page if no other page has it.
func (s *ageShard) home(page uint64) int {
	h, _ := bits.Mul64(page*0x9e3779b97f4a7c15<<6, uint64(len(s.pages)))
	return int(h)
}

// find returns the slot of a page, or the free slot where it belongs. The caller holds mu, and
// there is a free slot.
func (s *ageShard) find(page uint64) (slot int, here bool) {
	for slot = s.home(page); s.pages[slot] != 0; slot = s.next(slot) {
		if s.pages[slot] == page+1 {
			return slot, true
		}
	}
	return slot, false
}

// The first slot follows the last.
func (s *ageShard) next(slot int) int {
	if slot++; slot < len(s.pages) {
		return slot
	}
	return 0
}

func (s *ageShard) set(page uint64, m ageMark) {
	if 5*(s.n+1) > 4*len(s.pages) {
		s.grow()
	}
	slot, here := s.find(page)
	if !here {
		s.pages[slot] = page + 1
		s.n++
	}
	s.marks[slot] = m
}

// grow makes a quarter more room and puts every page into its new slot. The caller holds mu.
func (s *ageShard) grow() {
	pages, marks := s.pages, s.marks
	n := max(len(pages)*5/4+1, 8)
	s.pages, s.marks = make([]uint64, n), make([]ageMark, n)
	for i, page := range pages {
		if page != 0 {
			slot, _ := s.find(page - 1)
			s.pages[slot], s.marks[slot] = page, marks[i]
		}
	}
}

// Sink records that a page left memory at a time and is only in a tier of the store now. A page
// that is hot stays hot.
func (t *ageTable) Sink(page uint64, tier int, now uint32) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	hot := false
	if s.n > 0 {
		if slot, here := s.find(page); here {
			hot = s.marks[slot].Hot()
		}
	}
	s.set(page, newMark(tier, hot, now))
}

// Read records that a page was read from a tier. The page is hot if it had left memory, or was read
// before, at most window ago.
func (t *ageTable) Read(page uint64, tier int, now, window uint32) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	hot := false
	if s.n > 0 {
		if slot, here := s.find(page); here && s.marks[slot].At() > 0 {
			hot = now-s.marks[slot].At() <= window
		}
	}
	s.set(page, newMark(tier, hot, now))
}

// Seed records a page that was in the store at the start, unless the page is known already.
func (t *ageTable) Seed(page uint64, tier int, now uint32) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		if _, here := s.find(page); here {
			return
		}
	}
	s.set(page, newMark(tier, false, now))
}

// Moved records that the store moved a page to another tier, which does not count as a use. The
// page is not hot any more.
func (t *ageTable) Moved(page uint64, tier int) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		return
	}
	if slot, here := s.find(page); here {
		s.marks[slot] = newMark(tier, false, s.marks[slot].At())
	}
}

// Forget removes a page. The pages after its slot move up, so that no search ends too early.
func (t *ageTable) Forget(page uint64) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		return
	}
	hole, here := s.find(page)
	if !here {
		return
	}
	s.n--
	for slot := s.next(hole); s.pages[slot] != 0; slot = s.next(slot) {
		// The page in slot may move to the hole unless its home is after the hole, up to slot.
		home := s.home(s.pages[slot] - 1)
		if hole <= slot && (home > hole && home <= slot) || hole > slot && (home > hole || home <= slot) {
			continue
		}
		s.pages[hole], s.marks[hole] = s.pages[slot], s.marks[slot]
		hole = slot
	}
	s.pages[hole] = 0
}

// Each calls f for every page of a shard, under the lock of the shard, so f must not call the
// table. It reports whether there is such a shard; a caller that wants all pages counts shards from
// 0 on.
func (t *ageTable) Each(shard int, f func(page uint64, m ageMark)) bool {
	if shard >= len(t.shards) {
		return false
	}
	s := &t.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, page := range s.pages {
		if page != 0 {
			f(page-1, s.marks[i])
		}
	}
	return true
}

// Size returns the number of pages, and the bytes of memory that the table takes.
func (t *ageTable) Size() (pages int, bytes int64) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		pages += s.n
		bytes += 12 * int64(len(s.pages))
		s.mu.Unlock()
	}
	return pages, bytes
}

// Look returns the record of a page; false: there is none. It records nothing.
func (t *ageTable) Look(page uint64) (ageMark, bool) {
	s := t.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		return 0, false
	}
	slot, here := s.find(page)
	if !here {
		return 0, false
	}
	return s.marks[slot], true
}
