package pagestore

import (
	"iter"
	"math/bits"
)

// slotBytes is the size of a slot: the page and its entry.
const slotBytes = 32

// pageMap finds the committed entry of a page: slotBytes a slot, and between 40 and 51 bytes a
// page. Open addressing in 256 parts, each a quarter longer when it is full to four fifths, so that
// it never doubles as a whole. The store's mu guards it.
type pageMap struct {
	parts [256]pagePart
	n     int
}

// pagePart is a part of the slots; n are taken.
type pagePart struct {
	slots []pageSlot
	n     int
}

// pageSlot is a page and its entry; the zero entry marks a free slot.
type pageSlot struct {
	page uint64
	entry
}

// spread mixes a page's number; its top bits choose the part, and the rest the slot.
func spread(page uint64) uint64 { return page * 0x9e3779b97f4a7c15 }

func (m *pageMap) part(page uint64) *pagePart { return &m.parts[spread(page)>>56] }

func (p *pagePart) home(page uint64) int {
	at, _ := bits.Mul64(spread(page)<<8, uint64(len(p.slots)))
	return int(at)
}

// find is the slot of a page, or the free one where it belongs. There is a free slot.
func (p *pagePart) find(page uint64) *pageSlot {
	for at := p.home(page); ; {
		s := &p.slots[at]
		if s.entry == (entry{}) || s.page == page {
			return s
		}
		if at++; at == len(p.slots) {
			at = 0
		}
	}
}

func (m *pageMap) len() int { return m.n }

func (m *pageMap) get(page uint64) (entry, bool) {
	p := m.part(page)
	if p.n == 0 {
		return entry{}, false
	}
	e := p.find(page).entry
	return e, e != entry{}
}

// set stores the entry of a page, which is not the zero one.
func (m *pageMap) set(page uint64, e entry) {
	p := m.part(page)
	if 5*(p.n+1) > 4*len(p.slots) {
		p.resize(max(len(p.slots)*5/4+1, 8))
	}
	s := p.find(page)
	if s.entry == (entry{}) {
		p.n++
		m.n++
	}
	*s = pageSlot{page, e}
}

func (p *pagePart) resize(slots int) {
	old := p.slots
	p.slots = make([]pageSlot, slots)
	for _, s := range old {
		if s.entry != (entry{}) {
			*p.find(s.page) = s
		}
	}
}

// remove forgets a page. Later pages move up, so that no search ends too early.
func (m *pageMap) remove(page uint64) {
	p := m.part(page)
	if p.n == 0 || p.find(page).entry == (entry{}) {
		return
	}
	hole := p.home(page)
	for p.slots[hole].entry == (entry{}) || p.slots[hole].page != page {
		hole = (hole + 1) % len(p.slots)
	}
	for at := (hole + 1) % len(p.slots); p.slots[at].entry != (entry{}); at = (at + 1) % len(p.slots) {
		// A page moves to the hole unless its home lies behind the hole, up to where it is.
		home := p.home(p.slots[at].page)
		if hole <= at && (home > hole && home <= at) || hole > at && (home > hole || home <= at) {
			continue
		}
		p.slots[hole] = p.slots[at]
		hole = at
	}
	p.slots[hole] = pageSlot{}
	p.n--
	m.n--
}

func (m *pageMap) reset(n int) {
	*m = pageMap{}
	for i := range m.parts {
		// A few more than a part's share, since shares differ by chance.
		m.parts[i].slots = make([]pageSlot, n/len(m.parts)*13/10+8)
	}
}

// all yields every page, in no order. The map does not change meanwhile.
func (m *pageMap) all() iter.Seq2[uint64, entry] {
	return func(yield func(uint64, entry) bool) {
		for i := range m.parts {
			for _, s := range m.parts[i].slots {
				if s.entry != (entry{}) && !yield(s.page, s.entry) {
					return
				}
			}
		}
	}
}

func (m *pageMap) bytes() (n int64) {
	for i := range m.parts {
		n += slotBytes * int64(len(m.parts[i].slots))
	}
	return n
}
