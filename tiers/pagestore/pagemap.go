package pagestore

import (
	"iter"

	"github.com/exoswarm/exoswarm/tiers"
)

// pageMap finds the committed entry of a page: 32 bytes a slot, and between 40 and 51 bytes a page.
// It has 256 parts, so that it never grows as a whole. The store's mu guards it.
type pageMap struct {
	parts [256]tiers.PageMap[entry]
	n     int
}

func (m *pageMap) part(page uint64) *tiers.PageMap[entry] {
	return &m.parts[tiers.SpreadPage(page)>>56]
}

func (m *pageMap) len() int { return m.n }

func (m *pageMap) get(page uint64) (entry, bool) {
	e := m.part(page).Get(page)
	return e, e != entry{}
}

// set stores the entry of a page, which is not the zero one.
func (m *pageMap) set(page uint64, e entry) {
	p := m.part(page)
	m.n -= p.Len()
	p.Set(page, e)
	m.n += p.Len()
}

func (m *pageMap) remove(page uint64) {
	p := m.part(page)
	m.n -= p.Len()
	p.Remove(page)
	m.n += p.Len()
}

// reset empties the map and makes room for n pages.
func (m *pageMap) reset(n int) {
	*m = pageMap{}
	for i := range m.parts {
		// A few more than a part's share, since shares differ by chance.
		m.parts[i].Resize(n/len(m.parts)*13/10 + 8)
	}
}

// all yields every page, in no order. The map does not change meanwhile.
func (m *pageMap) all() iter.Seq2[uint64, entry] {
	return func(yield func(uint64, entry) bool) {
		for i := range m.parts {
			for page, e := range m.parts[i].All() {
				if !yield(page, e) {
					return
				}
			}
		}
	}
}
