package gpuagents

import (
	"math"
	"sync"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// budget is the memory for pages that the shards on a device share. A nil budget has as much on the device as the device has, and
// nothing in host memory. Its methods may be called from several goroutines.
type budget struct {
	*purse
	// arrive runs the taking of frames on the device as the moment at which what was kept for a shard becomes what it has; nil: nothing was
	// kept. See berth.
	arrive func(take func())
}

// purse is what is left of a budget.
type purse struct {
	mu           sync.Mutex
	device, host int64 // bytes left
}

// newBudget is a budget of so many bytes; of 0 on the device, none.
func newBudget(onDevice, inHost int64) *budget {
	if onDevice == 0 {
		return nil
	}
	return &budget{purse: &purse{device: onDevice, host: inHost}}
}

// as is the same budget for a shard that something was kept for.
func (b *budget) as(arrive func(take func())) *budget {
	if b == nil {
		return nil
	}
	return &budget{b.purse, arrive}
}

// room is how many bytes are left on the device; without a budget, more than any device has.
func (b *budget) room() int64 {
	if b == nil {
		return math.MaxInt64
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.device
}

// needOf is how many bytes the pages of a swarm's shard take where there is room for all; 0 of a record that cannot be read.
func needOf(s jobs.Swarm) int64 {
	spec, err := swarm.FromJSON(s.Spec)
	if err != nil {
		return 0
	}
	var layout kernels.Layout
	if spec.ByAgent() {
		cell, err := spec.Address()
		if err != nil {
			return 0
		}
		layout, err = cell.Layout(int(spec.PageSize))
		if err != nil {
			return 0
		}
	} else {
		bound, err := spec.Bind()
		if err != nil {
			return 0
		}
		layout, err = bound.Layout(int(spec.PageSize))
		if err != nil {
			return 0
		}
	}
	return int64((s.Groups+layout.Slots-1)/layout.Slots) * int64(layout.PageBytes)
}

// leastFrames is how many frames on the device a shard needs at least, if it has as many pages: one for a page that is stepped and one
// for the next that comes.
const leastFrames = 2

// share is what a shard has of a budget.
type share struct {
	of                     *budget
	frames                 int // on the device
	hostFrames, hostNeeded int // in host memory, and how many hold every page without a store
	deviceBytes, hostBytes int64
}

// onDevice takes frames for so many pages, or for as many as there is room. An errRoom as a *jobs.Error says that it is too little.
func (b *budget) onDevice(pages, pageBytes int) (s share, err error) {
	switch {
	case b == nil:
		return share{frames: pages, deviceBytes: int64(pages) * int64(pageBytes)}, nil
	case b.arrive == nil:
		return b.take(pages, pageBytes)
	}
	b.arrive(func() { s, err = b.take(pages, pageBytes) })
	return s, err
}

func (b *budget) take(pages, pageBytes int) (share, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(int64(pages), b.device/int64(pageBytes))
	if least := int64(min(pages, leastFrames)); n < least {
		return share{}, errRoom{
			bytes: int64(pages) * int64(pageBytes), device: b.device, host: b.host, short: least*int64(pageBytes) - b.device, where: "on the device",
		}.refused()
	}
	s := share{of: b, frames: int(n), deviceBytes: n * int64(pageBytes)}
	b.device -= s.deviceBytes
	return s, nil
}

// halve gives half of the frames on the device back, as far as the least that so many pages need. It returns false when there are no more
// than those, or no budget: pages then have no other place.
func (s *share) halve(pages, pageBytes int) bool {
	least := min(pages, leastFrames)
	if s.of == nil || s.frames <= least {
		return false
	}
	n := max(least, s.frames/2)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	back := int64(s.frames-n) * int64(pageBytes)
	s.frames, s.deviceBytes, s.of.device = n, s.deviceBytes-back, s.of.device+back
	return true
}

// takeHost takes up to so many frames in host memory, unless it has some.
func (s *share) takeHost(needed, pageBytes int) {
	s.hostNeeded = needed
	if s.of == nil || s.hostFrames > 0 {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.hostFrames = int(max(0, min(int64(needed), s.of.host/int64(pageBytes))))
	s.hostBytes = int64(s.hostFrames) * int64(pageBytes)
	s.of.host -= s.hostBytes
}

// give gives everything back. A second call does nothing.
func (s *share) give() {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.device += s.deviceBytes
	s.of.host += s.hostBytes
	*s = share{}
}
