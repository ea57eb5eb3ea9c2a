package pages

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/broadcast"
)

// Budget is the memory for pages that the shards on a device share. A nil Budget has all of the
// device and nothing in host memory. Its methods may be called from several goroutines.
type Budget struct {
	*sharedBudget
	// arrive runs the allocation of frames on the device at the moment at which the reservation of
	// a shard becomes its allocation; nil: nothing was reserved. See pool.Placement.
	arrive func(take func())
	// whole allocates frames on the device for every page of a shard, or none: residency: gpu.
	whole bool
	// beside is what a shard has on the device beside its pages and tables, in bytes.
	beside int64
	// eager takes the frames that are left rather than wait for frames that other shards may give.
	eager bool
}

// sharedBudget is the part of a budget that all of its shards have in common.
type sharedBudget struct {
	// shared reports whether the memory of the device is that of the machine. The tables of shards
	// then count against the budget of the device, else they are not counted.
	shared bool

	wholeDevice, wholeHost int64 // bytes of the budget, which do not change

	mu           sync.Mutex
	device, host int64                    // bytes left
	all          map[*Allocation]struct{} // of shards with pages, and of shards that wait in Await
	freed        *broadcast.Broadcast     // is sent when bytes come free
	// ages are the times without use after which pages move down, by tier of memory; 0: when their
	// frames are needed. They do not change.
	ages [2]time.Duration
	// prefetch fetches pages ahead of the observations that need them. It does not change.
	prefetch bool
}

// NewBudget returns a budget of so many bytes on the device and in host memory, and nil for 0 bytes
// on the device.
func NewBudget(onDevice, inHost int64) *Budget {
	if onDevice == 0 {
		return nil
	}
	return &Budget{
		sharedBudget: &sharedBudget{
			wholeDevice: onDevice, wholeHost: inHost, device: onDevice, host: inHost,
			all: map[*Allocation]struct{}{}, freed: broadcast.New(),
		},
	}
}

// WithSharedMemory sets whether the memory of the device is that of the machine. Like the other
// With methods it is called before the budget is shared, and returns it.
func (b *Budget) WithSharedMemory(is bool) *Budget {
	if b != nil {
		b.shared = is
	}
	return b
}

// WithAges sets the times without use after which pages leave the device and host memory; 0: when
// their frames are needed.
func (b *Budget) WithAges(onDevice, inHost time.Duration) *Budget {
	if b != nil {
		b.ages = [2]time.Duration{onDevice, inHost}
	}
	return b
}

// WithPrefetch sets whether the shards of the budget fetch pages ahead of observations.
func (b *Budget) WithPrefetch(is bool) *Budget {
	if b != nil {
		b.prefetch = is
	}
	return b
}

// tableBytes returns the bytes of the tables of a shard beside its pages: a stamp and a decision
// for each group, and entries of tables and indexes for each page.
func tableBytes(groups, pages int) int64 { return 8*int64(groups) + 64*int64(pages) }

// WithArrival returns the same budget for one shard: arrive calls the function that allocates its
// frames on the device.
func (b *Budget) WithArrival(arrive func(take func())) *Budget {
	if b == nil {
		return nil
	}
	own := *b
	own.arrive = arrive
	return &own
}

// AllOnDevice returns the same budget for a shard whose pages must all be on the device.
func (b *Budget) AllOnDevice() *Budget {
	if b == nil {
		return nil
	}
	own := *b
	own.whole = true
	return &own
}

// WithBeside returns the same budget for a shard that has so many bytes on the device beside its pages.
// Its allocation takes them too.
func (b *Budget) WithBeside(bytes int64) *Budget {
	if b == nil {
		return nil
	}
	own := *b
	own.beside = bytes
	return &own
}

// Room returns the bytes that are left on the device; for a nil Budget it is more than any device
// has.
func (b *Budget) Room() int64 {
	if b == nil {
		return math.MaxInt64
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.device
}

// minFrames is the number of frames on the device that a shard with as many pages needs at least:
// one for the page that is stepped and one for the next page that is loaded.
const minFrames = 2

// Allocation is the part of a budget that one shard has. Its owner, one goroutine, changes and
// releases it; others read it under the lock of the budget.
type Allocation struct {
	of                     *Budget
	frames                 int // on the device
	hostFrames, hostNeeded int // in host memory, and as many as hold every page without a store
	DeviceBytes, HostBytes int64
	tables                 int64 // bytes of tables, and of what is beside the pages

	pages, pageBytes int
	share
}

// Allocate takes tables for so many groups, and frames for so many pages or for as many as there is
// memory. A *Shortage says that other shards may give what is missing; a MemoryError as a
// *jobs.Error says how much is missing.
func (b *Budget) Allocate(groups, pages, pageBytes int) (s *Allocation, err error) {
	switch {
	case b == nil:
		return &Allocation{frames: pages, DeviceBytes: int64(pages) * int64(pageBytes)}, nil
	case b.arrive == nil:
		return b.allocate(groups, pages, pageBytes)
	}
	b.arrive(func() { s, err = b.allocate(groups, pages, pageBytes) })
	return s, err
}

// Take takes so many bytes on the device for what has no pages. A device.ErrOutOfMemory says that they
// are not left.
func (b *Budget) Take(bytes int64) (s *Allocation, err error) {
	switch {
	case b == nil:
		return &Allocation{}, nil
	case b.arrive == nil:
		return b.take(bytes)
	}
	b.arrive(func() { s, err = b.take(bytes) })
	return s, err
}

// take is Take at the moment at which a reservation ends.
func (b *Budget) take(bytes int64) (*Allocation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.device < bytes {
		return nil, fmt.Errorf("%d bytes beside pages, of which %d are left: %w", bytes, b.device,
			device.ErrOutOfMemory)
	}
	b.device -= bytes
	return &Allocation{of: b, DeviceBytes: bytes}, nil
}

// allocate is Allocate at the moment at which a reservation ends.
func (b *Budget) allocate(groups, pages, pageBytes int) (*Allocation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &Allocation{of: b, pages: pages, pageBytes: pageBytes, tables: b.beside, share: newShare()}
	if b.shared {
		s.tables += tableBytes(groups, pages)
	}
	left := b.device - s.tables
	least, goal := s.least(), b.goal(s, onDevice)
	n := min(goal, int(max(left, 0)/int64(pageBytes)))
	if n < least || n < goal && !b.eager {
		room := MemoryError{
			bytes:  int64(pages) * int64(pageBytes),
			tables: s.tables - b.beside,
			beside: b.beside,
			device: b.device,
			host:   b.host,
			short:  int64(least)*int64(pageBytes) - left,
			where:  "on the device",
			whole:  b.whole,
		}
		if b.mayGive(s) {
			return nil, &Shortage{room, s}
		}
		if n < least {
			return nil, room.Refusal()
		}
	}
	s.frames, s.DeviceBytes = n, int64(n)*int64(pageBytes)
	b.device -= s.DeviceBytes + s.tables
	b.all[s] = struct{}{}
	return s, nil
}

// halve gives half of the frames on the device back, down to the least that the pages need. It
// returns false when there are no more than those, or no budget: pages then have no other place.
func (s *Allocation) halve() bool {
	if s.of == nil || s.frames <= s.least() {
		return false
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	s.set(onDevice, max(s.least(), s.frames/2))
	return true
}

// set changes the number of frames of a tier of memory, and takes or gives the difference. of.mu is
// held.
func (s *Allocation) set(tier, frames int) {
	bytes := int64(frames) * int64(s.pageBytes)
	if tier == onDevice {
		s.of.device += s.DeviceBytes - bytes
		s.frames, s.DeviceBytes = frames, bytes
	} else {
		s.of.host += s.HostBytes - bytes
		s.hostFrames, s.HostBytes = frames, bytes
	}
	s.of.freed.Send()
}

// allocateHost takes up to so many frames in host memory, once.
func (s *Allocation) allocateHost(needed int) {
	if s.of == nil {
		s.hostNeeded = needed
		return
	}
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	if s.hostNeeded = needed; s.hostFrames > 0 || needed == 0 {
		return
	}
	goal := needed
	if s.gives {
		goal = s.of.goal(s, inHost)
	}
	s.set(inHost, int(max(0, min(int64(goal), s.of.host/int64(s.pageBytes)))))
	if s.hostFrames < goal {
		s.of.ask()
	}
}

// ages returns the ages of the budget; without a budget pages do not age.
func (s *Allocation) ages() (ages [2]time.Duration) {
	if s.of != nil {
		ages = s.of.ages
	}
	return ages
}

// prefetch returns whether pages are fetched ahead; without a budget every page has a frame.
func (s *Allocation) prefetch() bool { return s.of != nil && s.of.prefetch }

// Release gives everything back. A second call does nothing.
func (s *Allocation) Release() {
	if s == nil || s.of == nil {
		return
	}
	b := s.of
	b.mu.Lock()
	defer b.mu.Unlock()
	s.of.device += s.DeviceBytes + s.tables
	s.of.host += s.HostBytes
	delete(s.of.all, s)
	s.of.freed.Send()
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
