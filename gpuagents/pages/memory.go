// Package pages keeps the pages of a shard on a device, in host memory and in a store.
package pages

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/gpuframes"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// memory is the pages of a shard: in frames on the device, in host memory, and in the shard's store. A page that was never
// addressed is zeros and is nowhere; it is made when it is needed. Where there is a frame for each page, pages are brought to
// the device once and stay; otherwise those that are needed come and others go. One goroutine uses it.
type Memory struct {
	dev       device.Device
	pageBytes int
	dirty     []bool // by page: changed since the last checkpoint
	made      []bool // by page: it is in the pager

	arena      device.Buffer     // the frames on the device one behind the other, for kernels
	frames     *gpuframes.Device // which manages them
	host       *gpuframes.Pinned // nil: none
	allocation Allocation        // what it has of the budget
	pager      *pager.Pager      // nil until it is opened
	counts     *Metrics          // told of every pager; may be nil
	claims     *claims           // of pages that must stay on the device; nil: they need not

	resident bool        // a frame for each page
	pins     []pager.Pin // of a resident memory: of each page that is made
	whole    bool        // all of them are

	table frameTable
	forth []Set // the sets of a sweep
	back  bool  // the next sweep goes backwards: it meets first what is still on the device
	heat  heat
}

// The tiers of pages in memory, as metrics name them.
const (
	onDevice = iota
	inHost
)

// pageKind is what pages of state are to a codec: words of four bytes.
var pageKind = tiers.Kind{Elem: 4}

// newMemory takes tables for so many groups and frames on the device for so many pages, as many as b has; a nil budget has what the device has. It holds no
// page before open. An error that is a *jobs.Error says that the pages cannot be kept here.
func NewMemory(dev device.Device, b *Budget, groups, pageBytes, pages int) (m *Memory, err error) {
	given, err := b.Allocate(groups, pages, pageBytes) // before anything is made that is as large as the swarm
	if err != nil {
		return nil, err
	}
	m = &Memory{dev: dev, pageBytes: pageBytes, dirty: make([]bool, pages), made: make([]bool, pages), table: frameTable{frames: make([]uint32, pages)}, allocation: given}
	m.heat.seen, m.heat.up = make([]uint32, pages), make([]bool, pages)
	for { // one slab: kernels find a frame by its number
		n := m.allocation.frames
		m.resident = n == pages
		m.frames, err = gpuframes.NewDevice(gpuframes.Options{Device: dev, Count: n, PageSize: pageBytes, SlabBytes: int64(n) * int64(pageBytes)})
		if err == nil {
			break
		}
		// Others have taken what the budget had been promised: fewer frames hold the same pages.
		if !errors.Is(err, device.ErrOutOfMemory) || !m.allocation.halve(pages, pageBytes) {
			m.allocation.Release()
			return nil, fmt.Errorf("%d of %d pages of %d bytes: %w", n, pages, pageBytes, err)
		}
	}
	m.arena, _ = m.frames.Buffer(0)
	return m, nil
}

// watermarks are how many frames on the device the pager keeps free, so that one that is needed is there: see pager.Memory. Of few
// frames, and of those that hold pages for good, it keeps none.
func watermarks(frames int, resident bool) (low, high int) {
	switch n := frames; {
	case resident:
		return 0, min(1, n-1) // two zeros would be the pager's own choice
	case n < 8:
		return 0, 0
	default:
		return max(n/32, 1), max(n/16, 2)
	}
}

// usable is how many pages may be held on the device at once: watermarks are kept free, or the pager would push out what a
// sweep comes to next.
func (m *Memory) usableFrames() int {
	_, high := watermarks(m.frames.Count(), m.resident)
	return m.frames.Count() - high
}

// underway is how many pages may be on their way at once between host memory and the device, each of which takes a frame of both: two
// groups of the pager's that come, two that go, and what makes room for either.
const framesInTransit = 6 * groupPages

// pagesAtOnce is how many pages the pager moves in a group: its own default, said here because underway depends on it.
const groupPages = 16

// open makes the pages of store, which may be nil, those of the memory; it ends what was open before. The store is the caller's,
// who closes it after shut. An errRoom says that there is too little memory without a store.
func (m *Memory) Open(ctx context.Context, store Store) error {
	if err := m.Shut(); err != nil {
		return err
	}
	low, high := watermarks(m.frames.Count(), m.resident)
	o := pager.Options{
		Memory: []pager.Memory{{Name: "gpu", Frames: m.frames, Low: low, High: high}}, PageSize: m.pageBytes,
		Kind: func(uint64) tiers.Kind { return pageKind }, Batch: groupPages,
		// What is in no store comes at the speed of the bus, and a guess gains nothing. A sweep turns guesses off; see pass.
		NoPrefetch: m.resident || store == nil || !m.allocation.prefetch(),
	}
	if store != nil {
		o.Store = store
	}
	if s, ok := store.(Layered); ok {
		o.Disks = s.Disks() // pages in the store sink by these; those in memory go when there is need of their frames
	}
	if !m.resident {
		if err := m.allocateHost(store != nil); err != nil {
			return err
		}
		ages := m.allocation.ages()
		if m.host != nil {
			o.Memory = append(o.Memory, pager.Memory{Name: "cpu", Frames: m.host})
			o.Memory[onDevice].MaxIdle = ages[onDevice]
		}
		if store != nil { // the last tier of memory sinks into it
			o.Memory[len(o.Memory)-1].MaxIdle = ages[len(o.Memory)-1]
		}
	}
	p, err := pager.Open(o)
	if err != nil {
		return fmt.Errorf("pages: %w", err)
	}
	m.pager = p
	m.counts.opened(p, store)
	if store == nil {
		return nil
	}
	pages := store.Pages()
	if n := len(pages); n > 0 && pages[n-1] >= uint64(len(m.made)) {
		return errors.Join(fmt.Errorf("it has a page %d of %d", pages[n-1], len(m.made)), m.Shut())
	}
	for _, page := range pages {
		m.made[page] = true
	}
	if m.resident {
		if err := m.pinResident(ctx, pages); err != nil {
			return errors.Join(fault.Mark(err), m.Shut())
		}
	}
	return nil
}

// takeHost takes the frames in host memory: all that the pages need that are not on the device, or what the budget has of that. Below
// them is a store, or nothing.
func (m *Memory) allocateHost(store bool) (err error) {
	if m.host == nil {
		pages := len(m.made)
		m.allocation.allocateHost(min(pages, pages-m.usableFrames()+framesInTransit), m.pageBytes)
		if n := m.allocation.hostFrames; n > 0 {
			// One slab, as on the device: observations step pages there.
			m.host, err = gpuframes.NewPinned(gpuframes.Options{Device: m.dev, Count: n, PageSize: m.pageBytes, SlabBytes: int64(n) * int64(m.pageBytes)})
			if err != nil {
				return fmt.Errorf("%d of %d pages of %d bytes in host memory: %w", n, pages, m.pageBytes, err)
			}
		}
	}
	if store || m.allocation.hostFrames >= m.allocation.hostNeeded {
		return nil
	}
	return MemoryError{
		bytes: int64(len(m.made)) * int64(m.pageBytes), device: m.allocation.DeviceBytes, host: m.allocation.HostBytes,
		short: int64(m.allocation.hostNeeded-m.allocation.hostFrames) * int64(m.pageBytes), where: "in host memory",
	}
}

// shut ends the pager: what is not in the store at its last commit is gone. A second call does nothing.
func (m *Memory) Shut() error {
	if m.pager == nil {
		return nil
	}
	m.heat.stopExchange()
	pager.UnpinAll(m.pins)
	m.counts.closed(m.pager)
	err := m.pager.Close()
	m.pager, m.pins, m.whole = nil, nil, false
	if m.claims != nil {
		clear(m.claims.sums)
	}
	clear(m.dirty)
	clear(m.made)
	return err
}

// close releases the memory. A second call does nothing.
func (m *Memory) Close() error {
	if m == nil {
		return nil
	}
	err := m.Shut()
	if m.host != nil {
		err = errors.Join(err, m.host.Close())
	}
	err = errors.Join(err, m.frames.Close())
	m.allocation.Release()
	return err
}

// ready opens memory that nobody has opened, without a store.
func (m *Memory) ready(ctx context.Context) error {
	if m.pager != nil {
		return nil
	}
	return m.Open(ctx, nil)
}

// pinned are the frames in host memory, nil without any.
func (m *Memory) Pinned() device.HostBuffer {
	if m.host == nil {
		return nil
	}
	frames, _ := m.host.Buffer(0)
	return frames
}

// hostArena are the frames in host memory as an argument of kernels; without any, those on the device.
func (m *Memory) HostArena() device.Arg {
	frames := m.Pinned()
	if frames == nil {
		return device.Ptr(m.arena)
	}
	return device.Mapped(frames, 0, frames.Size())
}

// FlushFrames brings the copy of the table of frames on the device up to date. No launch under way may need
// the copy for pages whose entries have changed.
func (m *Memory) FlushFrames(copied device.Buffer) error { return m.table.flush(copied) }

// hold brings pages to a device that has room for all of them, for good. They are held for reading, so that a checkpoint may be made;
// what is written is in dirty.
func (m *Memory) pinResident(ctx context.Context, pages []uint64) error {
	from := len(m.pins)
	held, err := m.pager.PinAll(ctx, pages, onDevice, pager.ForReading, m.pins)
	if err != nil {
		return err
	}
	m.pins = held
	for i, page := range pages {
		m.table.set(page, held[from+i].Frame())
	}
	m.whole = len(m.pins) == len(m.made)
	return nil
}

// create makes the pages that are not there, on the device, and calls made for each.
func (m *Memory) create(ctx context.Context, pages []uint64, made func(page uint64) error) error {
	for _, page := range pages {
		if m.made[page] {
			continue
		}
		if err := m.pager.Create(ctx, page, onDevice); err != nil {
			return err
		}
		m.made[page] = true
		if err := made(page); err != nil {
			return err
		}
	}
	return nil
}

// reset makes all pages zeros.
func (m *Memory) Reset(ctx context.Context) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.heat.stopExchange()
	pager.UnpinAll(m.pins)
	m.pins, m.whole = m.pins[:0], false
	clear(m.dirty)
	for page, made := range m.made {
		if !made {
			continue
		}
		if err := m.pager.Delete(ctx, uint64(page)); err != nil {
			return fault.Mark(err)
		}
		m.made[page] = false
	}
	return nil
}

// read copies a page into buf, which has the length of one.
func (m *Memory) Read(ctx context.Context, page uint64, buf []byte) error {
	clear(buf)
	return m.ReadAll(ctx, []pager.Part{{Page: page, Bytes: buf}})
}

// readAll copies parts of pages to where they are to go; those of pages that are not there stay as they are.
func (m *Memory) ReadAll(ctx context.Context, parts []pager.Part) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	parts = slices.DeleteFunc(parts, func(p pager.Part) bool { return !m.made[p.Page] })
	return fault.Mark(m.pager.ReadAll(ctx, parts))
}

// write makes content what a page holds. What else follows from it, restored brings up to date.
func (m *Memory) Write(ctx context.Context, page uint64, content []byte) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.dirty[page] = true
	if err := m.create(ctx, []uint64{page}, func(page uint64) error {
		if !m.resident {
			return nil
		}
		return m.pinResident(ctx, []uint64{page})
	}); err != nil {
		return fault.Mark(err)
	}
	return fault.Mark(m.pager.Write(ctx, page, 0, content))
}

// checkpoint commits the pages as they are to the store, with a note. Afterwards nothing is dirty.
func (m *Memory) Checkpoint(ctx context.Context, note []byte) error {
	for page, dirty := range m.dirty {
		if !dirty || !m.resident { // else the pins of those who wrote have told the pager
			continue
		}
		h, err := m.pager.Pin(ctx, uint64(page), onDevice, pager.ForWriting)
		if err != nil {
			return fault.Mark(err)
		}
		h.Unpin()
	}
	if _, err := m.pager.Checkpoint(ctx, note); err != nil {
		return fault.Mark(err)
	}
	m.claims.written(m.dirty)
	clear(m.dirty)
	return nil
}
