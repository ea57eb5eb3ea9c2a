package pager

// Access is what a pin is for.
type Access uint8

// The kinds of access. Pins for writing may be held by several at once: the Pager keeps the page in
// place, and who writes what is between them.
const (
	ForReading Access = iota
	ForWriting
)

// Pin holds a page in its frame. It is a small value; its zero holds nothing.
type Pin struct {
	f      *frame
	access Access
}

// Page is the page that is held.
func (h Pin) Page() uint64 { return h.f.page.Load() }

// Frame is the number of the frame in its tier's Frames.
func (h Pin) Frame() int { return h.f.number }

// Tier is the number of the memory tier.
func (h Pin) Tier() int { return h.f.memory.level }

// Unpin gives the page back. It is called once.
func (h Pin) Unpin() {
	if h.access == ForWriting {
		h.f.writes.Add(-1)
	}
	m := h.f.memory
	if n := h.f.pins.Add(-1); n == 0 && m.waiters.Load() > 0 {
		m.hint()
	} else if n < 0 {
		panic("pager: page is unpinned twice")
	}
}

// UnpinAll gives pages back.
func UnpinAll(pins []Pin) {
	for _, h := range pins {
		h.Unpin()
	}
}
