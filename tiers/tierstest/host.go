package tierstest

import (
	"errors"

	"github.com/exoswarm/exoswarm/tiers"
)

// HostFrames is plain memory as a medium.
type HostFrames struct {
	pageSize int64
	memory   []byte
}

var (
	_ tiers.Mapped  = (*HostFrames)(nil)
	_ tiers.Resizer = (*HostFrames)(nil)
)

// NewHostFrames takes count frames of pageSize bytes from the Go heap, zeroed.
func NewHostFrames(count, pageSize int) *HostFrames {
	return &HostFrames{pageSize: int64(pageSize), memory: make([]byte, count*pageSize)}
}

// Count implements tiers.Frames.
func (h *HostFrames) Count() int { return len(h.memory) / int(h.pageSize) }

// Frame implements tiers.Mapped.
func (h *HostFrames) Frame(frame int) []byte {
	at := int64(frame) * h.pageSize
	return h.memory[at : at+h.pageSize : at+h.pageSize]
}

// Read implements tiers.Frames.
func (h *HostFrames) Read(frame int, off int64, dst []byte) error {
	if err := h.check(frame, off, len(dst)); err != nil {
		return err
	}
	copy(dst, h.Frame(frame)[off:])
	return nil
}

// Write implements tiers.Frames.
func (h *HostFrames) Write(frame int, off int64, src []byte) error {
	if err := h.check(frame, off, len(src)); err != nil {
		return err
	}
	copy(h.Frame(frame)[off:], src)
	return nil
}

// Resize implements tiers.Resizer.
func (h *HostFrames) Resize(count int, moves []tiers.Move) error {
	to := NewHostFrames(count, int(h.pageSize))
	for _, m := range moves {
		if err := errors.Join(h.check(m.From, 0, 0), to.check(m.To, 0, 0)); err != nil {
			return err
		}
		copy(to.Frame(m.To), h.Frame(m.From))
	}
	h.memory = to.memory
	return nil
}

// check refuses a range outside of a frame.
func (h *HostFrames) check(frame int, off int64, n int) error {
	return tiers.CheckFrame(frame, off, n, h.Count(), h.pageSize)
}
