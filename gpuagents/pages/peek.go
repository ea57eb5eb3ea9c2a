package pages

import (
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Peek reads the state of the pages of a Memory without a side effect: it moves no page, and counts
// no access. Only the goroutine that uses the Memory may use it.
type Peek struct{ m *Memory }

// Peek returns a reader of the state of the pages.
func (m *Memory) Peek() Peek { return Peek{m} }

// Present writes to frames the frame of each page that is on the device, and absent for the others.
// It holds these pages in their frames until the caller calls release, which it does once it is
// done with the frames, before the next use of the memory.
func (p Peek) Present(frames []uint32, absent uint32) (release func(), err error) {
	m := p.m
	if m.resident || m.pager == nil {
		for page, made := range m.made {
			if frames[page] = absent; made && m.pager != nil {
				frames[page] = m.table.frames[page]
			}
		}
		return func() {}, nil
	}
	for page := range frames {
		frames[page] = absent
	}
	var pins []pager.Pin
	err = m.pager.PinPresent(onDevice, 0, len(frames), func(h pager.Pin) {
		frames[h.Page()] = uint32(h.Frame())
		pins = append(pins, h)
	})
	return func() { pager.UnpinAll(pins) }, gpubatch.Mark(err)
}

// Location is the tier of a page, and its last use.
type Location struct {
	// Tier is an index of Tiers, or -1 for a page that was never addressed.
	Tier int8
	// Idle is the time since its last access; negative: not known.
	Idle time.Duration
}

// Tiers returns the names of the tiers that pages may be in, the fastest first.
func (p Peek) Tiers() []string {
	if p.m.pager == nil {
		return nil
	}
	return p.m.pager.Tiers()
}

// Locations fills to with the locations of the pages first, first+1 and so on.
func (p Peek) Locations(first int, to []Location) {
	found := make([]pager.Place, len(to))
	for i := range found {
		found[i].Tier = pager.NoTier
	}
	if p.m.pager != nil {
		p.m.pager.Places(uint64(first), found)
	}
	for i, f := range found {
		to[i] = Location{Tier: int8(f.Tier), Idle: f.Idle}
	}
}
