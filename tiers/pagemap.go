package tiers

import (
	"iter"
	"math/bits"
	"unsafe"
)

// PageMap has a value for each of some pages. The zero value of V marks a free slot, so no page has
// it. A slot takes 8 bytes and a V, and a page between 1.25 and 1.6 slots: open addressing in
// slices, which grow by a quarter at a time. A table that shall not grow as a whole has several
// maps, and chooses the map of a page by the top bits of SpreadPage. The zero PageMap is empty. Its
// methods may not be called at once.
type PageMap[V comparable] struct {
	pages  []uint64
	values []V
	n      int
}

// SpreadPage mixes the number of a page. Its top 8 bits choose one of several maps.
func SpreadPage(page uint64) uint64 { return page * 0x9e3779b97f4a7c15 }

// Len returns the number of pages.
func (m *PageMap[V]) Len() int { return m.n }

// Bytes returns the memory that the slots take.
func (m *PageMap[V]) Bytes() int64 {
	var v V
	return int64(8+unsafe.Sizeof(v)) * int64(len(m.pages))
}

// home returns the slot of a page if no other page has it.
func (m *PageMap[V]) home(page uint64) int {
	at, _ := bits.Mul64(SpreadPage(page)<<8, uint64(len(m.pages)))
	return int(at)
}

// next returns the slot after one; the first follows the last.
func (m *PageMap[V]) next(slot int) int {
	if slot++; slot < len(m.pages) {
		return slot
	}
	return 0
}

// find returns the slot of a page, or the free one where it belongs. There is a free slot.
func (m *PageMap[V]) find(page uint64) (slot int, here bool) {
	var free V
	for slot = m.home(page); m.values[slot] != free; slot = m.next(slot) {
		if m.pages[slot] == page {
			return slot, true
		}
	}
	return slot, false
}

// Get returns the value of a page, or the zero value.
func (m *PageMap[V]) Get(page uint64) (v V) {
	if m.n > 0 {
		slot, _ := m.find(page)
		v = m.values[slot]
	}
	return v
}

// Set stores the value of a page, which is not the zero value.
func (m *PageMap[V]) Set(page uint64, v V) {
	if 5*(m.n+1) > 4*len(m.pages) {
		m.Resize(max(len(m.pages)*5/4+1, 8))
	}
	slot, here := m.find(page)
	if !here {
		m.n++
	}
	m.pages[slot], m.values[slot] = page, v
}

// Resize gives the map some slots, more than it has pages, and each page its new slot.
func (m *PageMap[V]) Resize(slots int) {
	old := *m
	m.pages, m.values = make([]uint64, slots), make([]V, slots)
	for page, v := range old.All() {
		slot, _ := m.find(page)
		m.pages[slot], m.values[slot] = page, v
	}
}

// Remove forgets a page. The pages after its slot move up, so that no search ends too early.
func (m *PageMap[V]) Remove(page uint64) {
	if m.n == 0 {
		return
	}
	hole, here := m.find(page)
	if !here {
		return
	}
	var free V
	for slot := m.next(hole); m.values[slot] != free; slot = m.next(slot) {
		// The page in slot moves to the hole unless its home is after the hole, up to slot.
		home := m.home(m.pages[slot])
		if hole <= slot && (home > hole && home <= slot) || hole > slot && (home > hole || home <= slot) {
			continue
		}
		m.pages[hole], m.values[hole] = m.pages[slot], m.values[slot]
		hole = slot
	}
	m.values[hole] = free
	m.n--
}

// All yields every page, in no order. The map does not change meanwhile.
func (m *PageMap[V]) All() iter.Seq2[uint64, V] {
	return func(yield func(uint64, V) bool) {
		var free V
		for slot, v := range m.values {
			if v != free && !yield(m.pages[slot], v) {
				return
			}
		}
	}
}
