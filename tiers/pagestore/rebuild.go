package pagestore

import (
	"fmt"

	"github.com/exoswarm/exoswarm/tiers/index"
)

// candidate is the newest record of a page that was found so far.
type candidate struct {
	entry
	stamp index.Stamp
}

// rebuild finds the current record of every page from the headers of all records and makes the
// index anew. The index accepts nothing but the pages and epochs of its last commit.
func (s *Store) rebuild() error {
	found := map[uint64]candidate{}
	// Copies of one content that were made by moves. The copy of a move that a crash cut short may
	// be incomplete.
	copies := map[uint64][]entry{}
	for tier, d := range s.records.dirs {
		err := d.Scan(func(h recordHeader, l loc) {
			stamp := index.Stamp{Life: h.Life, Seq: h.Seq}
			if h.Epoch > maxEpoch || !s.index.Counts(h.Page, h.Epoch, stamp) {
				return
			}
			c := candidate{pack(tier, l, h.Epoch, stamp.Check()), stamp}
			old, ok := found[h.Page]
			switch {
			case ok && old.epoch() == h.Epoch && old.stamp == stamp:
				copies[h.Page] = append(copies[h.Page], c.entry)
				return
			case ok && (old.epoch() > h.Epoch || (old.epoch() == h.Epoch && old.stamp.Seq > h.Seq)):
				return
			}
			found[h.Page] = c
			delete(copies, h.Page)
		})
		if err != nil {
			return fmt.Errorf("tier %s: %w", d.name, err)
		}
	}
	s.table.committed.reset(len(found))
	for page, c := range found {
		e := c.entry
		for _, other := range copies[page] {
			if _, err := s.records.readAt(page, e, nil); err == nil {
				break
			}
			e = other
		}
		s.table.committed.set(page, e)
	}
	return s.index.Rebuild(s.table.entries(nil))
}
