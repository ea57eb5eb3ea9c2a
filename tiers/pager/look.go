package pager

import (
	"time"
)

// NoTier is the tier of a page that is nowhere: it was never made.
const NoTier = -1

// Place is where a page is.
type Place struct {
	// Tier is the number of the page's tier; tiers of the store follow the last memory tier. It is
	// NoTier for a page that does not exist.
	Tier int
	// Idle is the time since the last access, in steps of 5 ms in memory and 250 ms in the store;
	// negative: not known.
	Idle time.Duration
}

// Places writes to each element of to where the page first, first+1, ... is. It counts as no
// access. Each element is of its own moment. A page that moves is where it comes from.
func (p *Pager) Places(first uint64, to []Place) {
	now, stamp := p.clock.now(), p.clock.stamp()
	for i := range to {
		page := first + uint64(i)
		to[i] = Place{Tier: NoTier, Idle: -1}
		if f := p.table.frameOf(page); f != nil {
			to[i] = Place{Tier: f.memory.level, Idle: time.Duration(max(0, now-f.touched.Load())) * tick}
			continue
		}
		if p.store == nil || !p.store.Has(page) {
			continue
		}
		tier, err := p.store.Where(page)
		if err != nil { // it was deleted a moment ago, or is lost
			continue
		}
		to[i].Tier = len(p.memory) + tier
		if m, ok := p.ages.Look(page); ok && m.At() > 0 {
			to[i].Idle = time.Duration(stamp-min(stamp, m.At())) * stampUnit
		}
	}
}

// PinPresent holds each of the pages first, first+1, ... that is in a frame of a memory tier, for
// reading, until they are unpinned, and calls held with each. It moves no page, and counts as no
// access, so it changes neither the order in which pages are evicted nor the hits. It does not
// wait: a page that moves is left out.
func (p *Pager) PinPresent(tier int, first uint64, count int, held func(Pin)) error {
	m, err := p.tier(tier)
	if err != nil {
		return err
	}
	for page := first; page < first+uint64(count); page++ {
		s := p.table.shard(page)
		s.mu.RLock()
		f := s.pages[page]
		if f == nil || f.moving || f.memory != m {
			s.mu.RUnlock()
			continue
		}
		f.pins.Add(1)
		s.mu.RUnlock()
		held(Pin{f, ForReading})
	}
	return nil
}

// Tiers returns the names of all tiers in the order of Place.Tier. The slice is the caller's.
func (p *Pager) Tiers() []string {
	var names []string
	for _, m := range p.memory {
		names = append(names, m.Name)
	}
	for _, d := range p.opts.Disks {
		names = append(names, d.Name)
	}
	return names
}
