//go:build cuda

package driver

/*
#cgo nocallback exo_event_query
#include "supplement.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"time"

	"gorgonia.org/cu"

	"github.com/exoswarm/exoswarm/cuda/device"
)

// pool keeps the memory of closed buffers, because cuMemAlloc takes 47 us on an H200 and cuMemFree
// waits for all work of the device. Blocks come in classes, so that a buffer of about the same size
// finds one. Every byte from the driver is in a buffer, free or pending, and counts against the
// limit of the device.
//
// Its lock is taken last: inside it no other lock is taken and the driver is asked only whether an
// event is done.
type pool struct {
	dev *Device

	mu       sync.Mutex
	free     map[int64][]block // by size: blocks that no work uses
	pending  []released        // blocks that work of a stream may still use
	events   []C.CUevent       // for the next release
	reserved int64             // bytes from the driver
	cached   int64             // blocks of free and pending
}

// block is memory from the driver.
type block struct {
	ptr  C.CUdeviceptr
	size int64
}

// released is a block that is free once the event is done, and at once for work of the same stream.
type released struct {
	block
	stream C.CUstream
	event  C.CUevent
}

const (
	// smallestBlock is what the driver rounds to.
	smallestBlock = 512
	// classesEnd is where classes end: eight of them between two powers of two waste 6 % on
	// average, which is much in buffers of gigabytes. Those are multiples of bigStep, what the
	// driver rounds large ones to.
	classesEnd = 64 << 20
	bigStep    = 2 << 20
)

// classSize is the size of the block for a buffer of n bytes, n >= 1.
func classSize(n int64) int64 {
	step := int64(bigStep)
	if n <= classesEnd {
		step = max(int64(1)<<bits.Len64(uint64(n-1))>>4, smallestBlock)
	}
	if n > 1<<62 {
		return n // no device has it
	}
	return (n + step - 1) / step * step
}

// sizes are the bytes that came from the driver, and the part of them that no buffer has.
func (p *pool) sizes() (reserved, cached int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reserved, p.cached
}

// take returns a block for n bytes that the work of s, nil for none, may use at once. Without room
// it gives the cache of every opening of the GPU back to the driver and tries once more. The device
// is acquired.
func (p *pool) take(n int64, s *stream) (block, error) {
	size := classSize(n)
	if b, ok := p.reuse(size, s); ok {
		return b, nil
	}
	if p.reserve(size) {
		b, err := p.fetch(size)
		if err == nil || !errors.Is(err, device.ErrOutOfMemory) {
			return b, err
		}
	}
	if err := p.drain(); err != nil {
		return block{}, err
	}
	if _, err := p.trim(); err != nil {
		return block{}, err
	}
	p.dev.trimOthers()
	size, err := p.reserveRest(n, size)
	if err != nil {
		return block{}, err
	}
	b, err := p.fetch(size)
	if exact := (n + smallestBlock - 1) / smallestBlock * smallestBlock; errors.Is(err, device.ErrOutOfMemory) &&
		exact < size && p.reserve(exact) {
		return p.fetch(exact) // what a class adds does not fit either
	}
	return b, err
}

func (p *pool) reuse(size int64, s *stream) (block, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s != nil {
		for i, r := range p.pending {
			if r.size == size && r.stream == s.raw {
				p.forget(i)
				p.cached -= size
				return r.block, true
			}
		}
	}
	if len(p.free[size]) == 0 {
		p.reap()
	}
	list := p.free[size]
	if len(list) == 0 {
		return block{}, false
	}
	b := list[len(list)-1]
	p.free[size] = list[:len(list)-1]
	p.cached -= size
	return b, true
}

// reap frees the pending blocks whose work is done. p.mu is held.
func (p *pool) reap() {
	for i := 0; i < len(p.pending); {
		r := p.pending[i]
		if C.exo_event_query(p.dev.raw, r.event) != C.CUDA_SUCCESS { // not done, or the device is broken, as others say
			i++
			continue
		}
		p.forget(i)
		p.put(r.block)
	}
}

// forget takes pending block i off the list, whose event is for the next one. p.mu is held.
func (p *pool) forget(i int) {
	p.events = append(p.events, p.pending[i].event)
	last := len(p.pending) - 1
	p.pending[i] = p.pending[last]
	p.pending = p.pending[:last]
}

// put enters a free block. p.mu is held.
func (p *pool) put(b block) {
	if p.free == nil {
		p.free = map[int64][]block{}
	}
	p.free[b.size] = append(p.free[b.size], b)
}

// give keeps a block that no work uses.
func (p *pool) give(b block) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cached += b.size
	p.put(b)
}

// reserve counts size bytes that are to come from the driver, unless they would pass the limit.
func (p *pool) reserve(size int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if size > p.dev.limit-p.reserved {
		return false
	}
	p.reserved += size
	return true
}

// reserveRest reserves what there is below the limit when a whole class does not fit and n bytes
// do.
func (p *pool) reserveRest(n, size int64) (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if left := p.dev.limit - p.reserved; size > left {
		size = left
	}
	if size < n {
		return 0, fmt.Errorf("%d of %d in use on %s: %w", p.reserved-p.cached, p.dev.limit, p.dev.props.Name,
			device.ErrOutOfMemory)
	}
	p.reserved += size
	return size, nil
}

// fetch gets a reserved block from the driver.
func (p *pool) fetch(size int64) (block, error) {
	b := block{size: size}
	err := p.dev.enter(func() error {
		at, err := cu.MemAlloc(size)
		b.ptr = C.CUdeviceptr(at)
		return err
	})
	if err := p.dev.failCu(err, "cuMemAlloc of %d bytes", size); err != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reserved -= size
		return block{}, err
	}
	return b, nil
}

// event is one that nothing waits for.
func (p *pool) event() (e C.CUevent, err error) {
	p.mu.Lock()
	if n := len(p.events); n > 0 {
		e = p.events[n-1]
		p.events = p.events[:n-1]
	}
	p.mu.Unlock()
	if e == nil {
		err = p.dev.fail(C.exo_event_create_plain(p.dev.raw, &e), "cuEventCreate")
	}
	return e, err
}

// release keeps a block for the work of s, and for all once the work that is in s now is done.
func (p *pool) release(b block, s *stream, event C.CUevent) error {
	if err := p.dev.fail(C.exo_event_record(p.dev.raw, event, s.raw), "cuEventRecord"); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cached += b.size
	p.pending = append(p.pending, released{b, s.raw, event})
	return nil
}

func (p *pool) unused(e C.CUevent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.events = append(p.events, e)
}

// drain waits for the work of the pending blocks and frees them.
func (p *pool) drain() error {
	start := time.Now()
	for {
		p.mu.Lock()
		p.reap()
		var event C.CUevent
		if len(p.pending) > 0 {
			event = p.pending[0].event
		}
		p.mu.Unlock()
		if event == nil {
			return nil
		}
		// The event may be recorded again meanwhile: then there is one more wait.
		r := C.exo_event_poll(p.dev.raw, event, C.int64_t(spin), C.int64_t(glance))
		if r != C.CUDA_ERROR_NOT_READY {
			if err := p.dev.fail(r, "cuEventQuery"); err != nil {
				return err
			}
		}
		if err := p.dev.late("wait for released memory", start); err != nil {
			return err
		}
	}
}

// trim gives the free blocks back to the driver.
func (p *pool) trim() (int64, error) {
	p.mu.Lock()
	p.reap()
	var blocks []block
	for size, list := range p.free {
		blocks = append(blocks, list...)
		delete(p.free, size)
	}
	for _, b := range blocks {
		p.cached -= b.size
	}
	p.mu.Unlock()
	var total int64
	err := p.dev.enter(func() error {
		var first error
		for _, b := range blocks {
			if err := cu.MemFree(cu.DevicePtr(b.ptr)); err != nil && first == nil {
				first = err
			}
			total += b.size
		}
		return first
	})
	p.mu.Lock()
	p.reserved -= total
	p.mu.Unlock()
	return total, p.dev.failCu(err, "cuMemFree of %d blocks", len(blocks))
}

// Trim gives the cached memory back.
func (d *Device) Trim() (int64, error) {
	if err := d.acquire("trim"); err != nil {
		return 0, err
	}
	defer d.life.RUnlock()
	return d.pool.trim()
}

// trimOthers releases what other openings of the GPU keep. An opening that is being closed does so
// itself.
func (d *Device) trimOthers() {
	openings.Lock()
	var others []*Device
	for o := range openings.by[d.index] {
		if o != d {
			others = append(others, o)
		}
	}
	openings.Unlock()
	for _, o := range others {
		// TryRLock: two devices that wait for each other's Close would never end.
		if !o.life.TryRLock() {
			continue
		}
		if !o.closed && o.broken.Load() == nil {
			if _, err := o.pool.trim(); err != nil {
				d.log.Warn("another opening keeps its memory", "device", o.props.Name, "generation", o.props.Generation,
					"err", err)
			}
		}
		o.life.RUnlock()
	}
}

// Alloc takes a block that this stream's work has given up, or any.
func (s *stream) Alloc(n int64, purpose string) (device.Buffer, error) {
	if n < 0 {
		return nil, s.note(fmt.Errorf("alloc %d bytes for %s: %w", n, purpose, device.ErrInvalidArgument))
	}
	if err := s.beginPlain("alloc"); err != nil {
		return nil, err
	}
	defer s.end()
	b, err := s.dev.alloc(n, purpose, s)
	if err != nil {
		return nil, s.tell(err)
	}
	return b, nil
}

// Release closes the handle and leaves the block to the stream's work.
func (s *stream) Release(m device.Buffer) error {
	b, ok := m.(*buffer)
	if !ok || b == nil || b.dev != s.dev {
		return s.note(fmt.Errorf("release on %s: a buffer of another device: %w", s.dev.props.Name,
			device.ErrInvalidArgument))
	}
	if err := s.beginPlain("release"); err != nil {
		return err
	}
	defer s.end()
	d := s.dev
	event, err := d.pool.event() // before the handle closes, so that a failure leaves it whole
	if err != nil {
		return s.tell(err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed.Swap(true) {
		d.pool.unused(event)
		return fmt.Errorf("release: buffer for %s: %w", b.purpose, device.ErrClosed)
	}
	d.mu.Lock()
	delete(d.buffers, b)
	d.mu.Unlock()
	if b.ptr == 0 {
		d.pool.unused(event)
		return nil
	}
	return s.tell(d.pool.release(b.block, s, event))
}
