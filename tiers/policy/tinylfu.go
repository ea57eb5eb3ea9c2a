package policy

import "math/bits"

// TinyLFU is W-TinyLFU of Einziger, Friedman and Manes (ACM TOS 2017): a window of 1 % that takes
// every page, and a segmented LRU that a page enters only when a sketch of recent frequencies puts
// it above the page that would go.
type TinyLFU struct {
	arena
	capacity, window, protected int
	lists                       [3]list
	sketch                      sketch
	evict                       func(uint64)
}

// The lists of TinyLFU.
const (
	tinyWindow = iota
	tinyProbation
	tinyProtected
)

// NewTinyLFU returns an empty TinyLFU of capacity pages that reports what it evicts.
func NewTinyLFU(capacity int, evict func(uint64)) *TinyLFU {
	window := max(capacity/100, 1)
	return &TinyLFU{
		arena: newArena(capacity), capacity: capacity, window: window, protected: (capacity - window) * 8 / 10,
		sketch: newSketch(capacity), evict: evict,
	}
}

// Name implements Expert.
func (*TinyLFU) Name() string { return "w-tinylfu" }

// Contains implements Expert.
func (c *TinyLFU) Contains(page uint64) bool { return c.find[page] != 0 }

// Access implements Expert.
func (c *TinyLFU) Access(page uint64) bool {
	c.sketch.add(page)
	if i := c.find[page]; i != 0 {
		n := &c.nodes[i]
		switch n.list {
		case tinyWindow, tinyProtected:
			c.touch(&c.lists[n.list], i)
		case tinyProbation:
			c.move(i, tinyProtected)
			if c.lists[tinyProtected].n > c.protected {
				c.move(c.lists[tinyProtected].head, tinyProbation)
			}
		}
		return true
	}
	c.add(&c.lists[tinyWindow], page)
	if c.lists[tinyWindow].n > c.window {
		candidate := c.lists[tinyWindow].head
		c.move(candidate, tinyProbation)
		if c.lists[tinyProbation].n+c.lists[tinyProtected].n > c.capacity-c.window {
			c.admit(candidate)
		}
	}
	return false
}

// admit evicts the newcomer to the main part or the page that it would push out, whichever was used
// less.
func (c *TinyLFU) admit(candidate int32) {
	from, victim := uint8(tinyProbation), c.lists[tinyProbation].head
	if victim == candidate && c.lists[tinyProtected].head != 0 {
		from, victim = tinyProtected, c.lists[tinyProtected].head
	}
	if c.sketch.estimate(c.nodes[candidate].page) <= c.sketch.estimate(c.nodes[victim].page) {
		from, victim = tinyProbation, candidate
	}
	gone := c.nodes[victim].page
	c.drop(&c.lists[from], victim)
	c.evict(gone)
}

func (c *TinyLFU) move(i int32, to uint8) {
	c.cut(&c.lists[c.nodes[i].list], i)
	c.nodes[i].list = to
	c.push(&c.lists[to], i)
}

// Remove implements Expert.
func (c *TinyLFU) Remove(page uint64) {
	if i := c.find[page]; i != 0 {
		c.drop(&c.lists[c.nodes[i].list], i)
	}
}

// sketch is a count-min sketch of four rows of 4-bit counters, halved after every ten capacities of
// accesses.
type sketch struct {
	rows  [4][]uint64 // sixteen counters a word
	shift uint
	n     int
	limit int
}

// newSketch has at least as many counters a row as the cache has pages.
func newSketch(capacity int) sketch {
	counters := max(64, 1<<bits.Len(uint(capacity-1)))
	s := sketch{limit: 10 * capacity, shift: uint(64 - bits.Len(uint(counters-1)))}
	for r := range s.rows {
		s.rows[r] = make([]uint64, counters/16)
	}
	return s
}

// seeds spread a page differently in each row.
var seeds = [4]uint64{0xc3a5c85c97cb3127, 0xb492b66fbe98f273, 0x9ae16a3b2f90404f, 0xcbf29ce484222325}

func (s *sketch) slot(row int, page uint64) (word int, bit uint) {
	h := (page + 0x9e3779b97f4a7c15) * seeds[row]
	h ^= h >> 32
	h *= 0xd6e8feb86659fd93
	i := h >> s.shift
	return int(i / 16), uint(i%16) * 4
}

func (s *sketch) add(page uint64) {
	for r := range s.rows {
		w, b := s.slot(r, page)
		if s.rows[r][w]>>b&15 < 15 {
			s.rows[r][w] += 1 << b
		}
	}
	if s.n++; s.n >= s.limit {
		s.n /= 2
		for r := range s.rows {
			for i := range s.rows[r] {
				s.rows[r][i] = s.rows[r][i] >> 1 & 0x7777777777777777
			}
		}
	}
}

// estimate returns the number of recent accesses of a page, up to 15.
func (s *sketch) estimate(page uint64) uint64 {
	least := uint64(15)
	for r := range s.rows {
		w, b := s.slot(r, page)
		least = min(least, s.rows[r][w]>>b&15)
	}
	return least
}
