package gpuagents

import (
	"sync"
)

// budget is the memory for pages that the shards of an agent share. A nil budget has as much on the device as the device has, and
// nothing in host memory. Its methods may be called from several goroutines.
type budget struct {
	mu           sync.Mutex
	device, host int64 // bytes left
}

// newBudget is a budget of so many bytes; of 0 on the device, none.
func newBudget(onDevice, inHost int64) *budget {
	if onDevice == 0 {
		return nil
	}
	return &budget{device: onDevice, host: inHost}
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
func (b *budget) onDevice(pages, pageBytes int) (share, error) {
	if b == nil {
		return share{frames: pages, deviceBytes: int64(pages) * int64(pageBytes)}, nil
	}
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
