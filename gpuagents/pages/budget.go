package pages

import (
	"math"
	"sync"
	"time"
)

// budget is the memory for pages that the shards on a device share. A nil budget has as much on the device as the device has, and
// nothing in host memory. Its methods may be called from several goroutines.
type Budget struct {
	*sharedBudget
	// arrive runs the taking of frames on the device as the moment at which what was kept for a shard becomes what it has; nil: nothing was
	// kept. See berth.
	arrive func(take func())
	// whole has every page of a shard on the device, or none of the shard: residency: gpu.
	whole bool
}

// purse is what is left of a budget.
type sharedBudget struct {
	// shared reports whether the device's memory is the machine's: the tables of shards come out of it then. Else they come out of host memory, as far
	// as there is some.
	shared bool

	wholeDevice, wholeHost int64 // bytes of the budget

	mu           sync.Mutex
	device, host int64 // bytes left
	// ages are after how long without use pages sink, by tier of memory; 0: when their frames are needed. They do not change.
	ages [2]time.Duration
	// prefetch has pages fetched ahead of the observations that need them. It does not change.
	prefetch bool
}

// newBudget is a budget of so many bytes; of 0 on the device, none.
func NewBudget(onDevice, inHost int64) *Budget {
	if onDevice == 0 {
		return nil
	}
	return &Budget{sharedBudget: &sharedBudget{wholeDevice: onDevice, wholeHost: inHost, device: onDevice, host: inHost}}
}

// onHost makes it a budget of a device whose memory is the machine's.
func (b *Budget) WithSharedMemory(is bool) *Budget {
	if b != nil {
		b.shared = is
	}
	return b
}

// aged sets the ages of a new budget, and returns it.
func (b *Budget) WithAges(onDevice, inHost time.Duration) *Budget {
	if b != nil {
		b.ages = [2]time.Duration{onDevice, inHost}
	}
	return b
}

// prefetching says whether the shards of a new budget fetch pages ahead of observations, and returns it.
func (b *Budget) WithPrefetch(is bool) *Budget {
	if b != nil {
		b.prefetch = is
	}
	return b
}

// tableBytes is what a shard keeps for its groups and pages wherever their state is: of a group the stamp and the decision, of a page its place
// in tables and indexes.
func tableBytes(groups, pages int) int64 { return 8*int64(groups) + 64*int64(pages) }

// as is the same budget for a shard that something was kept for.
func (b *Budget) WithArrival(arrive func(take func())) *Budget {
	if b == nil {
		return nil
	}
	return &Budget{sharedBudget: b.sharedBudget, arrive: arrive, whole: b.whole}
}

// allOnDevice is the same budget for a shard whose pages must all be on the device.
func (b *Budget) AllOnDevice() *Budget {
	if b == nil {
		return nil
	}
	return &Budget{sharedBudget: b.sharedBudget, arrive: b.arrive, whole: true}
}

// room is how many bytes are left on the device; without a budget, more than any device has.
func (b *Budget) Room() int64 {
	if b == nil {
		return math.MaxInt64
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.device
}

// leastFrames is how many frames on the device a shard needs at least, if it has as many pages: one for a page that is stepped and one
// for the next that comes.
const minFrames = 2

// share is what a shard has of a budget.
type Allocation struct {
	of                     *Budget
	frames                 int // on the device
	hostFrames, hostNeeded int // in host memory, and how many hold every page without a store
	DeviceBytes, HostBytes int64
	tables                 int64 // bytes of tables, out of device or host memory
}

// onDevice takes tables for so many groups, and frames for so many pages, or for as many as there is room. An errRoom as a *jobs.Error says that
// it is too little.
func (b *Budget) Allocate(groups, pages, pageBytes int) (s Allocation, err error) {
	switch {
	case b == nil:
		return Allocation{frames: pages, DeviceBytes: int64(pages) * int64(pageBytes)}, nil
	case b.arrive == nil:
		return b.allocate(groups, pages, pageBytes)
	}
	b.arrive(func() { s, err = b.allocate(groups, pages, pageBytes) })
	return s, err
}

func (b *Budget) allocate(groups, pages, pageBytes int) (Allocation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	tables := int64(0)
	if b.shared {
		tables = tableBytes(groups, pages)
	}
	left := b.device - tables
	n := min(int64(pages), left/int64(pageBytes))
	least := int64(min(pages, minFrames))
	if b.whole {
		least = int64(pages)
	}
	if n < least {
		return Allocation{}, MemoryError{
			bytes: int64(pages) * int64(pageBytes), tables: tables, device: b.device, host: b.host, short: least*int64(pageBytes) - left, where: "on the device", whole: b.whole,
		}.Refusal()
	}
	s := Allocation{of: b, frames: int(n), DeviceBytes: n * int64(pageBytes), tables: tables}
	b.device -= s.DeviceBytes + tables
	return s, nil
}

// halve gives half of the frames on the device back, as far as the least that so many pages need. It returns false when there are no more
// than those, or no budget: pages then have no other place.
func (s *Allocation) halve(pages, pageBytes int) bool {
	least := min(pages, minFrames)
	if s.of == nil || s.of.whole || s.frames <= least {
		return false
	}
	n := max(least, s.frames/2)
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	back := int64(s.frames-n) * int64(pageBytes)
	s.frames, s.DeviceBytes, s.of.device = n, s.DeviceBytes-back, s.of.device+back
	return true
}

// takeHost takes up to so many frames in host memory, unless it has some.
func (s *Allocation) allocateHost(needed, pageBytes int) {
	s.hostNeeded = needed
	if s.of == nil || s.hostFrames > 0 {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.hostFrames = int(max(0, min(int64(needed), s.of.host/int64(pageBytes))))
	s.HostBytes = int64(s.hostFrames) * int64(pageBytes)
	s.of.host -= s.HostBytes
}

// ages are those of the budget; without one, pages stay.
func (s Allocation) ages() (ages [2]time.Duration) {
	if s.of != nil {
		ages = s.of.ages
	}
	return ages
}

// prefetch is that of the budget; without one every page has a frame, and none is fetched.
func (s Allocation) prefetch() bool { return s.of != nil && s.of.prefetch }

// give gives everything back. A second call does nothing.
func (s *Allocation) Release() {
	if s.of == nil {
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.of.device += s.DeviceBytes + s.tables
	s.of.host += s.HostBytes
	*s = Allocation{}
}

// Left returns how many bytes of a budget are left on the device and in host memory.
func (b *Budget) Left() (onDevice, inHost int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.device, b.host
}

// Size returns how many bytes a budget has on the device and in host memory, used or not.
func (b *Budget) Size() (onDevice, inHost int64) { return b.wholeDevice, b.wholeHost }
