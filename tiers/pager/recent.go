package pager

import (
	"math/bits"
	"sync"
)

// recent remembers of each page of the store in which of its tiers it was last seen, when it was
// last in use, and whether it was read again soon after it had sunk: what aging goes by. It takes
// 12 bytes a slot and between 15 and 19 a page: open addressing in a Go slice, a quarter longer at
// a time.
type recent struct{ shards [64]recentShard }

type recentShard struct {
	mu    sync.Mutex
	pages []uint64 // page+1, 0 for a free slot
	marks []mark
	n     int
}

// mark is the tier in 4 bits, hot in one, and the time in 27, in units of stampUnit since Open;
// time 0 is unknown.
type mark uint32

const (
	markHot  mark = 1 << 27
	markTime mark = markHot - 1
)

func newMark(tier int, hot bool, at uint32) mark {
	m := mark(tier)<<28 | mark(min(at, uint32(markTime)))
	if hot {
		m |= markHot
	}
	return m
}

func (m mark) tier() int  { return int(m >> 28) }
func (m mark) hot() bool  { return m&markHot != 0 }
func (m mark) at() uint32 { return uint32(m & markTime) }

// shard finds a page's part, and home its slot in it.
func (r *recent) shard(page uint64) *recentShard { return &r.shards[page*0x9e3779b97f4a7c15>>58] }

func (s *recentShard) home(page uint64) int {
	h, _ := bits.Mul64(page*0x9e3779b97f4a7c15<<6, uint64(len(s.pages)))
	return int(h)
}

// find is the slot of a page, or the free one where it belongs. The caller holds mu, and there is a
// free slot.
func (s *recentShard) find(page uint64) (slot int, here bool) {
	for slot = s.home(page); s.pages[slot] != 0; slot = s.next(slot) {
		if s.pages[slot] == page+1 {
			return slot, true
		}
	}
	return slot, false
}

func (s *recentShard) next(slot int) int {
	if slot++; slot < len(s.pages) {
		return slot
	}
	return 0
}

// set stores a page's mark.
func (s *recentShard) set(page uint64, m mark) {
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

// grow makes a quarter more room.
func (s *recentShard) grow() {
	pages, marks := s.pages, s.marks
	n := max(len(pages)*5/4+1, 8)
	s.pages, s.marks = make([]uint64, n), make([]mark, n)
	for i, page := range pages {
		if page != 0 {
			slot, _ := s.find(page - 1)
			s.pages[slot], s.marks[slot] = page, marks[i]
		}
	}
}

// sink notes that a page is in a tier only from now on.
func (r *recent) sink(page uint64, tier int, now uint32) {
	s := r.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	hot := false
	if s.n > 0 {
		if slot, here := s.find(page); here {
			hot = s.marks[slot].hot()
		}
	}
	s.set(page, newMark(tier, hot, now))
}

// read notes that a page was read from a tier. It is hot when that comes within window after it had
// sunk.
func (r *recent) read(page uint64, tier int, now, window uint32) {
	s := r.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	hot := false
	if s.n > 0 {
		if slot, here := s.find(page); here && s.marks[slot].at() > 0 {
			hot = now-s.marks[slot].at() <= window
		}
	}
	s.set(page, newMark(tier, hot, now))
}

// seed notes a page that was there at the start, unless it is known already.
func (r *recent) seed(page uint64, tier int, now uint32) {
	s := r.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n > 0 {
		if _, here := s.find(page); here {
			return
		}
	}
	s.set(page, newMark(tier, false, now))
}

// moved notes that the store moved a page to another tier, which is no use of it.
func (r *recent) moved(page uint64, tier int) {
	s := r.shard(page)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n == 0 {
		return
	}
	if slot, here := s.find(page); here {
		s.marks[slot] = newMark(tier, false, s.marks[slot].at())
	}
}

// drop forgets a page: those behind it move up, so that no search breaks off.
func (r *recent) drop(page uint64) {
	s := r.shard(page)
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
		// The page in slot may move to the hole unless its home lies behind the hole, up to slot.
		home := s.home(s.pages[slot] - 1)
		if hole <= slot && (home > hole && home <= slot) || hole > slot && (home > hole || home <= slot) {
			continue
		}
		s.pages[hole], s.marks[hole] = s.pages[slot], s.marks[slot]
		hole = slot
	}
	s.pages[hole] = 0
}

// each calls f for every page of a shard, under its lock; it says whether there is such a shard.
func (r *recent) each(shard int, f func(page uint64, m mark)) bool {
	if shard >= len(r.shards) {
		return false
	}
	s := &r.shards[shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, page := range s.pages {
		if page != 0 {
			f(page-1, s.marks[i])
		}
	}
	return true
}

// size is the number of pages, and the bytes that they take.
func (r *recent) size() (pages int, bytes int64) {
	for i := range r.shards {
		s := &r.shards[i]
		s.mu.Lock()
		pages += s.n
		bytes += 12 * int64(len(s.pages))
		s.mu.Unlock()
	}
	return pages, bytes
}
