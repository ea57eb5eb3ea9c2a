package pager

// This file remembers when the pages of a store were last in use, in a compact table.
//
// A page manager asks it which pages to move between the tiers of its store. It records of each
// page in which tier it was last seen, when it was last in use, and whether it was read again soon
// after it had left memory.

import (
	"sync"

	"github.com/exoswarm/exoswarm/tiers"
)

// ageTable records pages. Its zero value is empty. All methods may be called from several
// goroutines at once. Times are numbers in units of the caller's choice, from 1 on.
//
// It takes 12 bytes a slot and between 15 and 19 a page. Each of its 64 shards has a lock, under
// which no other lock is taken.
type ageTable struct{ shards [64]ageShard }

type ageShard struct {
	mu    sync.Mutex
	marks tiers.PageMap[ageMark]
}

// ageMark is the record of a page: its tier in 4 bits, one bit for hot, and the time in 27. The
// time is 1 or more, so no mark is 0, which tiers.PageMap needs.
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

// At returns the time of the last use; of no mark it is 0.
func (m ageMark) At() uint32 { return uint32(m) & MaxTime }

// locked calls f with the shard of a page, under its lock.
func (t *ageTable) locked(page uint64, f func(marks *tiers.PageMap[ageMark])) {
	s := &t.shards[tiers.SpreadPage(page)>>58]
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.marks)
}

// Sink records that a page left memory at a time and is only in a tier of the store now. A page
// that is hot stays hot.
func (t *ageTable) Sink(page uint64, tier int, now uint32) {
	t.locked(page, func(marks *tiers.PageMap[ageMark]) {
		marks.Set(page, newMark(tier, marks.Get(page).Hot(), now))
	})
}

// Read records that a page was read from a tier. The page is hot if it had left memory, or was read
// before, at most window ago.
func (t *ageTable) Read(page uint64, tier int, now, window uint32) {
	t.locked(page, func(marks *tiers.PageMap[ageMark]) {
		at := marks.Get(page).At()
		marks.Set(page, newMark(tier, at > 0 && now-at <= window, now))
	})
}

// Seed records a page that was in the store at the start, unless the page is known already.
func (t *ageTable) Seed(page uint64, tier int, now uint32) {
	t.locked(page, func(marks *tiers.PageMap[ageMark]) {
		if marks.Get(page) == 0 {
			marks.Set(page, newMark(tier, false, now))
		}
	})
}

// Moved records that the store moved a page to another tier, which does not count as a use. The
// page is not hot any more.
func (t *ageTable) Moved(page uint64, tier int) {
	t.locked(page, func(marks *tiers.PageMap[ageMark]) {
		if m := marks.Get(page); m != 0 {
			marks.Set(page, newMark(tier, false, m.At()))
		}
	})
}

// Forget removes a page.
func (t *ageTable) Forget(page uint64) {
	t.locked(page, func(marks *tiers.PageMap[ageMark]) { marks.Remove(page) })
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
	for page, m := range s.marks.All() {
		f(page, m)
	}
	return true
}

// Size returns the number of pages, and the bytes of memory that the table takes.
func (t *ageTable) Size() (pages int, bytes int64) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		pages += s.marks.Len()
		bytes += s.marks.Bytes()
		s.mu.Unlock()
	}
	return pages, bytes
}

// Look returns the record of a page; false: there is none. It records nothing.
func (t *ageTable) Look(page uint64) (m ageMark, ok bool) {
	t.locked(page, func(marks *tiers.PageMap[ageMark]) { m = marks.Get(page) })
	return m, m != 0
}
