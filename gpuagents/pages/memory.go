// Package pages keeps the pages of a shard on a device, in host memory and in a store.
package pages

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/gpuframes"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/policy"
)

// Memory is the pages of a shard: in frames on the device, in host memory, and in the store of the
// shard. A page that was never addressed is all zeros and takes no memory; it is made when it is
// needed. With a frame for each page, pages are brought to the device once and stay; otherwise
// pages are paged in and evicted as they are needed. One goroutine uses it; its owner closes it
// before the device.
type Memory struct {
	dev       device.Device
	pageBytes int
	dirty     []bool // by page: changed since the last checkpoint
	made      []bool // by page: it is in the pager

	arena      device.Buffer     // the frames on the device, contiguous, for kernels
	frames     *gpuframes.Device // manages the frames on the device
	host       *gpuframes.Pinned // nil or without frames: none
	allocation *Allocation       // its part of the budget
	pager      *pager.Pager      // nil before Open
	counts     *Metrics          // counts the pagers; may be nil
	claims     *claims           // claims of pages that must stay on the device; nil: pages may leave it

	resident bool        // there is a frame for each page
	pins     []pager.Pin // pins of a resident memory, one for each page that exists
	whole    bool        // all pages exist

	contents uint64 // counts replacements of the content other than by kernels

	table frameTable
	forth []Set // the sets of a sweep
	back  bool  // the next sweep goes backwards: it starts with the pages that are still on the device
	heat  heat
	used  []int64 // by resident page: the batch that used it last; nil: none has
	batch int64   // number of the last batch
}

// The tiers of memory, in the order of the pager.
const (
	onDevice = iota
	inHost
)

var pageKind = tiers.Kind{Elem: 4}

// NewMemory allocates tables for groups, and frames on the device for pages, or for as many as the
// budget has; a nil budget has all of the device. The memory has no pages before Open. A
// *jobs.Error means that there is no room for the pages.
func NewMemory(dev device.Device, b *Budget, groups, pageBytes, pages int) (m *Memory, err error) {
	given, err := b.Allocate(groups, pages, pageBytes) // before allocations that are as large as the swarm
	if err != nil {
		return nil, err
	}
	m = &Memory{
		dev:        dev,
		pageBytes:  pageBytes,
		dirty:      make([]bool, pages),
		made:       make([]bool, pages),
		table:      frameTable{frames: make([]uint32, pages), to: pages}, // the first flush writes all entries
		allocation: given,
	}
	m.heat.seen, m.heat.up = make([]uint32, pages), make([]bool, pages)
	for { // one slab: kernels find a frame by its number
		n := m.allocation.frames
		m.resident = n == pages
		m.frames, err = gpuframes.NewDevice(gpuframes.Options{
			Device: dev, Count: n, PageSize: pageBytes, SlabBytes: int64(n) * int64(pageBytes),
		})
		if err == nil {
			break
		}
		// Other processes have taken memory that the budget counts: fewer frames hold the same
		// pages.
		if !errors.Is(err, device.ErrOutOfMemory) || !m.allocation.halve() {
			m.allocation.Release()
			return nil, fmt.Errorf("%d of %d pages of %d bytes: %w", n, pages, pageBytes, err)
		}
	}
	m.arena, _ = m.frames.Buffer(0)
	return m, nil
}

// watermarks returns how many frames on the device the pager keeps free, so that a frame is free
// when it is needed; see pager.Memory. A memory with few frames, or with resident pages, keeps none
// free.
func watermarks(frames int, resident bool) (low, high int) {
	switch n := frames; {
	case resident:
		return 0, min(1, n-1) // two zeros would select the default of the pager
	case n < 8:
		return 0, 0
	default:
		return max(n/32, 1), max(n/16, 2)
	}
}

// usableFrames returns how many pages may be pinned at once in a number of frames on the device.
// The frames below the watermark stay free; otherwise the pager would evict what a sweep needs
// next.
func usableFrames(frames int, resident bool) int {
	_, high := watermarks(frames, resident)
	return frames - high
}

// framesInTransit is the maximum number of pages that move between host memory and the device at
// once, each with a frame of both: two groups of the pager in each direction, and what makes room
// for either.
const framesInTransit = 6 * groupPages

// groupPages is the number of pages that the pager moves at a time: its default, on which
// framesInTransit depends.
const groupPages = 16

// Open makes the memory hold the pages of a store. It ends what was open before. store may be nil;
// it belongs to the caller, who closes it after Shut. A MemoryError means that there is too little
// memory without a store.
func (m *Memory) Open(ctx context.Context, store Store) error {
	if err := m.Shut(); err != nil {
		return err
	}
	m.contents++
	low, high := watermarks(m.frames.Count(), m.resident)
	o := pager.Options{
		Memory: []pager.Memory{{Name: "gpu", Frames: m.frames, Low: low, High: high}}, PageSize: m.pageBytes,
		Kind: func(uint64) tiers.Kind { return pageKind }, Batch: groupPages,
		// Pages outside a store come at the speed of the bus, where a guess gains nothing. A sweep
		// turns guesses off; see stream.
		NoPrefetch: store == nil || !m.allocation.prefetch(),
		Prefetch:   policy.PredictorOptions{Entries: min(policy.DefaultPredictorEntries, 4*len(m.made))},
	}
	if store != nil {
		o.Store = store
	}
	shared := m.allocation.shared(store != nil) // it may have fewer frames later, and then pages in host memory
	if s, ok := store.(Layered); ok {
		o.Disks = s.Disks() // how pages move down in the store; pages in memory move when their frames are needed
	}
	if !m.resident || shared {
		if err := m.allocateHost(store != nil); err != nil {
			return err
		}
		ages := m.allocation.ages()
		if m.host != nil {
			o.Memory = append(o.Memory, pager.Memory{Name: "cpu", Frames: m.host})
			o.Memory[onDevice].MaxIdle = ages[onDevice]
		}
		if store != nil { // pages of the last tier of memory age into it
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
			return errors.Join(gpubatch.Mark(err), m.Shut())
		}
	}
	return nil
}

// allocateHost takes frames in host memory for all pages that do not fit on the device, or as many
// as the budget has. store reports whether there is a store below.
func (m *Memory) allocateHost(store bool) (err error) {
	if m.host == nil {
		pages := len(m.made)
		m.allocation.allocateHost(m.hostNeeded(m.frames.Count()))
		if n := m.allocation.hostFrames; n > 0 || store && m.allocation.gives {
			// One slab, as on the device: observations step pages there.
			m.host, err = gpuframes.NewPinned(gpuframes.Options{
				Device: m.dev, Count: n, PageSize: m.pageBytes, SlabBytes: int64(n) * int64(m.pageBytes),
			})
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

// hostNeeded returns how many frames in host memory hold the pages that do not fit into a number of
// frames on the device.
func (m *Memory) hostNeeded(frames int) int {
	pages := len(m.made)
	if frames == pages {
		return 0
	}
	return min(pages, pages-usableFrames(frames, false)+framesInTransit)
}

// Shut closes the pager. What was not committed to the store is lost. A second call does nothing.
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

// Close releases the memory. A second call does nothing, and so does a call for a nil Memory.
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

func (m *Memory) ready(ctx context.Context) error {
	if m.pager != nil {
		return nil
	}
	return m.Open(ctx, nil)
}

// Pinned returns the frames in host memory; nil: there are none.
func (m *Memory) Pinned() device.HostBuffer {
	if m.hostFrames() == 0 {
		return nil
	}
	frames, _ := m.host.Buffer(0)
	return frames
}

func (m *Memory) hostFrames() int {
	if m.host == nil {
		return 0
	}
	return m.host.Count()
}

// HostArena returns the frames in host memory as a kernel argument; the frames on the device if
// there are none in host memory.
func (m *Memory) HostArena() device.Arg {
	frames := m.Pinned()
	if frames == nil {
		return device.Ptr(m.arena)
	}
	return device.Mapped(frames, 0, frames.Size())
}

// FlushFrames brings the copy of the table of frames on the device up to date. No launch under way
// may need the copy for pages whose entries have changed.
func (m *Memory) FlushFrames(copied device.Buffer) error { return m.table.flush(copied) }

// pinResident brings pages to the device and pins them for good. The pins are for reading, so that
// a checkpoint can run; dirty tracks the writes.
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

// create creates the missing pages on the device, and calls made for each.
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

// makePages creates the missing pages, and pins them if the memory is resident.
func (m *Memory) makePages(ctx context.Context, pages ...uint64) error {
	return gpubatch.Mark(m.create(ctx, pages, func(page uint64) error {
		if !m.resident {
			return nil
		}
		return m.pinResident(ctx, []uint64{page})
	}))
}

// Reset removes all pages, which are zeros then.
func (m *Memory) Reset(ctx context.Context) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.contents++
	m.heat.stopExchange()
	pager.UnpinAll(m.pins)
	m.pins, m.whole = m.pins[:0], false
	clear(m.dirty)
	for page, made := range m.made {
		if !made {
			continue
		}
		if err := m.pager.Delete(ctx, uint64(page)); err != nil {
			return gpubatch.Mark(err)
		}
		m.made[page] = false
	}
	return nil
}

// Device returns the device that the pages are on.
func (m *Memory) Device() device.Device { return m.dev }

// Read copies a page into buf, which has the length of a page.
func (m *Memory) Read(ctx context.Context, page uint64, buf []byte) error {
	if !m.made[page] {
		clear(buf)
	}
	return m.ReadAll(ctx, []pager.Part{{Page: page, Bytes: buf}})
}

// ReadAll copies parts of pages to their buffers. It leaves the buffers of pages that do not exist
// as they are, and may change the order of parts.
func (m *Memory) ReadAll(ctx context.Context, parts []pager.Part) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	parts = slices.DeleteFunc(parts, func(p pager.Part) bool { return !m.made[p.Page] })
	return gpubatch.Mark(m.pager.ReadAll(ctx, parts))
}

// Write sets the content of a page. The caller then calls state.State.Restored.
func (m *Memory) Write(ctx context.Context, page uint64, content []byte) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.contents++
	m.dirty[page] = true
	if err := m.makePages(ctx, page); err != nil {
		return err
	}
	return gpubatch.Mark(m.pager.Write(ctx, page, 0, content))
}

// WriteAll copies the buffers of parts to their pages, and makes the pages that do not exist, whose
// other bytes are zeros. It may change the order of parts of different pages.
func (m *Memory) WriteAll(ctx context.Context, parts []pager.Part) error {
	if err := m.ready(ctx); err != nil {
		return err
	}
	m.contents++
	for _, p := range parts {
		m.dirty[p.Page] = true
		if err := m.makePages(ctx, p.Page); err != nil {
			return err
		}
	}
	return gpubatch.Mark(m.pager.WriteAll(ctx, parts))
}

// Checkpoint commits the pages to the store, with a note. No page is dirty then.
func (m *Memory) Checkpoint(ctx context.Context, note []byte) error {
	if err := m.tellDirty(ctx); err != nil {
		return gpubatch.Mark(err)
	}
	if _, err := m.pager.Checkpoint(ctx, note); err != nil {
		return gpubatch.Mark(err)
	}
	m.claims.written(m.dirty)
	clear(m.dirty)
	return nil
}

// tellDirty tells the pager which resident pages have changed. Other pages are pinned for writing,
// which tells it.
func (m *Memory) tellDirty(ctx context.Context) error {
	for page, dirty := range m.dirty {
		if !dirty || !m.resident {
			continue
		}
		h, err := m.pager.Pin(ctx, uint64(page), onDevice, pager.ForWriting)
		if err != nil {
			return err
		}
		h.Unpin()
	}
	return nil
}
