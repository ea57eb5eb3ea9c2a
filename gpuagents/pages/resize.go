package pages

import (
	"context"
	"errors"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Asked has an element when other shards need frames of this memory: its owner then calls Give. It
// is nil if the memory gives none.
func (m *Memory) Asked() <-chan struct{} { return m.allocation.asked }

// Give gives the frames back that the memory has above its goal, the coldest pages first. No page
// is pinned but pages that a resident memory holds. A failure leaves the frames as they are, and
// the memory usable, unless it is a gpubatch.ErrDevice.
func (m *Memory) Give(ctx context.Context) error {
	if m.allocation.of == nil || !m.allocation.gives || m.pager == nil {
		return nil
	}
	return m.resize(ctx, false)
}

// Use notes that a batch begins. The caller calls the function that it returns after the batch,
// which takes more frames if others have left some and the memory has use for them.
func (m *Memory) Use() (end func(ctx context.Context) error) {
	m.allocation.work(true)
	return func(ctx context.Context) error {
		if !m.allocation.work(false) || m.pager == nil {
			return nil
		}
		return m.resize(ctx, true)
	}
}

func (m *Memory) resize(ctx context.Context, grow bool) error {
	frames, host := m.allocation.plan(grow, m.hostNeeded)
	hasFrames, hasHost := m.frames.Count(), m.hostFrames()
	if frames == hasFrames && host == hasHost {
		return nil
	}
	m.heat.endExchange()
	err := m.leaveResidence(ctx)
	if err == nil && host > hasHost { // before pages leave the device for these frames
		err = m.refit(ctx, inHost, host)
	}
	if err == nil && frames != hasFrames {
		err = m.refit(ctx, onDevice, frames)
	}
	if err == nil && host < hasHost {
		err = m.refit(ctx, inHost, host)
	}
	if err == nil && frames == len(m.made) {
		err = m.enterResidence(ctx)
	}
	m.arena, _ = m.frames.Buffer(0)
	m.used = nil
	m.contents++
	m.forth = nil
	m.coolDown()
	m.allocation.settle(m.frames.Count(), m.hostFrames(), err)
	return gpubatch.Mark(err)
}

// refit changes the number of frames of a tier. If the device has no room for the old and the new
// frames, the pages move down first.
func (m *Memory) refit(ctx context.Context, tier, frames int) error {
	to := func(frames int) pager.Size {
		s := pager.Size{Frames: frames}
		s.Low, s.High = watermarks(frames, tier == onDevice && frames == len(m.made))
		if tier == onDevice && m.used != nil {
			s.Used = func(page uint64) int64 { return m.used[page] }
		}
		return s
	}
	err := m.pager.Resize(ctx, tier, to(frames))
	if tier != onDevice || !errors.Is(err, device.ErrOutOfMemory) || frames > m.frames.Count() {
		return err
	}
	if err = m.pager.Resize(ctx, tier, to(min(len(m.made), minFrames))); err != nil {
		return err
	}
	return m.pager.Resize(ctx, tier, to(frames))
}

// leaveResidence unpins the pages of a resident memory, so that they may leave the device.
func (m *Memory) leaveResidence(ctx context.Context) error {
	if !m.resident {
		return nil
	}
	if err := m.tellDirty(ctx); err != nil {
		return err
	}
	pager.UnpinAll(m.pins)
	m.pins, m.whole, m.resident, m.back = nil, false, false, false
	return nil
}

// enterResidence pins all pages on the device, which now has a frame for each.
func (m *Memory) enterResidence(ctx context.Context) error {
	var pages []uint64
	for page, made := range m.made {
		if made {
			pages = append(pages, uint64(page))
		}
	}
	m.resident, m.back = true, false
	if err := m.pinResident(ctx, pages); err != nil {
		m.resident = false
		return err
	}
	return nil
}

// coolDown clears the marks of pages that are no longer on the device.
func (m *Memory) coolDown() {
	places := make([]pager.Place, len(m.made))
	m.pager.Places(0, places)
	for page, p := range places {
		m.heat.up[page] = m.heat.up[page] && p.Tier == onDevice
	}
}
