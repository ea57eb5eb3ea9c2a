package pages

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// Budget is the memory for pages that the shards on a device share. A nil Budget has all of the
// device and nothing in host memory. Its methods may be called from several goroutines.
type Budget struct {
	*sharedBudget
	// arrive runs the allocation of frames on the device at the moment at which the reservation of
	// a shard becomes its allocation; nil: nothing was reserved. See pool.Slot.
	arrive func(take func())
	// whole allocates frames on the device for every page of a shard, or none: residency: gpu.
	whole bool
	// beside is what a shard needs on the device in addition to its pages and tables, in bytes.
	beside int64
	// eager takes the frames that are left rather than wait for frames that other shards may give.
	eager bool
	// together is how many pages of a shard are on the device at once.
	together int
}

// sharedBudget is the part of a budget that all its shards share.
type sharedBudget struct {
	// shared reports whether the device uses the memory of the machine. The tables of shards then
	// count against the budget of the device; otherwise they are not counted.
	shared bool

	wholeDevice, wholeHost int64 // bytes of the budget, which do not change

	mu           sync.Mutex
	device, host int64                    // bytes left
	all          map[*Allocation]struct{} // shards with pages, and shards that wait in Await
	freed        *Broadcast               // sent when bytes become free
	// ages are the times without use after which pages move down, by tier of memory; 0: when their
	// frames are needed. They do not change.
	ages [2]time.Duration
	// prefetch fetches pages ahead of the observations that need them. It does not change.
	prefetch bool
}

// NewBudget returns a budget with these bytes on the device and in host memory; nil for 0 bytes on
// the device.
func NewBudget(onDevice, inHost int64) *Budget {
	if onDevice == 0 {
		return nil
	}
	return &Budget{
		sharedBudget: &sharedBudget{
			wholeDevice: onDevice, wholeHost: inHost, device: onDevice, host: inHost,
			all: map[*Allocation]struct{}{}, freed: NewBroadcast(),
		},
	}
}

// WithSharedMemory sets whether the device uses the memory of the machine. Like the other With
// methods it is called before the budget is shared.
func (b *Budget) WithSharedMemory(is bool) *Budget {
	return b.with(func(own *Budget) { own.shared = is })
}

// WithAges sets the times without use after which pages leave the device and host memory; 0: when
// their frames are needed.
func (b *Budget) WithAges(onDevice, inHost time.Duration) *Budget {
	return b.with(func(own *Budget) { own.ages = [2]time.Duration{onDevice, inHost} })
}

// WithPrefetch sets whether the shards of the budget fetch pages ahead of observations.
func (b *Budget) WithPrefetch(is bool) *Budget {
	return b.with(func(own *Budget) { own.prefetch = is })
}

// tableBytes returns the size of the tables of a shard: a stamp and a decision for each group, and
// entries of tables and indexes for each page.
func tableBytes(groups, pages int) int64 { return 8*int64(groups) + 64*int64(pages) }

// WithArrival returns the same budget for one shard: arrive calls the function that allocates its
// frames on the device.
func (b *Budget) WithArrival(arrive func(take func())) *Budget {
	return b.with(func(own *Budget) { own.arrive = arrive })
}

// AllOnDevice returns the same budget for a shard whose pages must all be on the device.
func (b *Budget) AllOnDevice() *Budget { return b.with(func(own *Budget) { own.whole = true }) }

// WithBeside returns the same budget for a shard that needs bytes on the device in addition to its
// pages. Its allocation takes them too.
func (b *Budget) WithBeside(bytes int64) *Budget {
	return b.with(func(own *Budget) { own.beside = bytes })
}

// WithTogether returns the same budget for a shard with a number of pages that must be on the device
// at once. The shard always has frames for them.
func (b *Budget) WithTogether(pages int) *Budget {
	return b.with(func(own *Budget) { own.together = pages })
}

func (b *Budget) with(change func(own *Budget)) *Budget {
	if b == nil {
		return nil
	}
	own := *b
	change(&own)
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

// minFrames is the minimum number of frames on the device of a shard with more than one page: one
// for the page that is stepped and one for the page that is loaded next.
const minFrames = 2

// Allocation is the part of a budget that one shard has. Its owner, one goroutine, changes and
// releases it; others read it under the lock of the budget.
type Allocation struct {
	of                     *Budget
	frames                 int // on the device
	hostFrames, hostNeeded int // in host memory, and as many as hold every page without a store
	DeviceBytes, HostBytes int64
	tables                 int64 // bytes of tables and of WithBeside

	pages, pageBytes int
	share
}

// Allocate takes tables for groups, and frames for all pages or for as many as fit. A *Shortage
// means that other shards may give what is missing; a MemoryError as a *jobs.Error says how much is
// missing.
func (b *Budget) Allocate(groups, pages, pageBytes int) (s *Allocation, err error) {
	if b == nil {
		return &Allocation{frames: pages, DeviceBytes: int64(pages) * int64(pageBytes)}, nil
	}
	b.arriving(func() { s, err = b.allocate(groups, pages, pageBytes) })
	return s, err
}

// arriving calls take when the reservation of the shard ends, or at once without a reservation.
func (b *Budget) arriving(take func()) {
	if b.arrive == nil {
		take()
		return
	}
	b.arrive(take)
}

// Take takes bytes on the device for data without pages. A device.ErrOutOfMemory means that the
// budget has less left.
func (b *Budget) Take(bytes int64) (s *Allocation, err error) {
	if b == nil {
		return &Allocation{}, nil
	}
	b.arriving(func() { s, err = b.take(bytes) })
	return s, err
}

// Pin takes bytes in host memory for data without pages. It returns nil if fewer are left, or without
// a budget.
func (b *Budget) Pin(bytes int64) *Allocation {
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.host < bytes {
		return nil
	}
	b.host -= bytes
	return &Allocation{of: b, HostBytes: bytes}
}

func (b *Budget) take(bytes int64) (*Allocation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.device < bytes {
		return nil, fmt.Errorf("%d bytes beside pages, and %d are left: %w", bytes, b.device,
			device.ErrOutOfMemory)
	}
	b.device -= bytes
	return &Allocation{of: b, DeviceBytes: bytes}, nil
}

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

// halve gives back half of the frames on the device, down to the least number. It returns false at
// the least number and without a budget.
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

// allocateHost takes up to needed frames in host memory, once.
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

func (s *Allocation) ages() (ages [2]time.Duration) {
	if s.of != nil {
		ages = s.of.ages
	}
	return ages
}

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
