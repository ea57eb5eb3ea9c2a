package pager

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// callKind is what a call asks of the store.
type callKind uint8

const (
	callGet callKind = iota
	callPut
	callMove
)

// The states of a call.
const (
	callQueued int32 = iota
	callRunning
	callDone
	callAbandoned
)

// call is one read, write or move on the medium of a store's tier. A medium that stalls keeps the
// goroutine that runs the call, and not the one that waits for it: that abandons the call, and
// whatever the call may still touch stays its own until the medium has answered. A call is also the
// context of its work, which is over once it is abandoned.
type call struct {
	context.Context
	kind  callKind
	disk  *disk
	page  uint64
	buf   []byte
	state atomic.Int32
	begun atomic.Int64 // when it was taken up, by nanotime
	err   error
	done  chan struct{} // has room for one
	timer *time.Timer
	// stage and frame, when set, are given back by whoever ends the call: buffers that it works in.
	stage []byte
	frame *frame
}

// Err implements context.Context.
func (c *call) Err() error {
	if c.state.Load() == callAbandoned {
		return context.DeadlineExceeded
	}
	return c.Context.Err()
}

// disk is a tier of the store.
type disk struct {
	Disk
	level   int
	breaker *breaker
	calls   chan *call
	depth   atomic.Int64
	ended   atomic.Uint64 // calls that came to an end: a queue that moves is no stall
	failed  atomic.Uint64
	gets    histogram
	puts    histogram
}

// leftAlone says that the tier's breaker is open.
func (d *disk) leftAlone() error {
	return fmt.Errorf("%s: %w: %w", d.Name, tiers.ErrUnavailable, tiers.ErrMedium)
}

// diskWorkers is how many calls run at once on each tier of the store: package pagestore's
// benchmarks reach the rate of a disk with two, and codecs take a core each.
const diskWorkers = 4

// serve runs calls of a tier until the Pager is closed.
func (p *Pager) serve(d *disk) {
	for {
		select {
		case c := <-d.calls:
			if !c.state.CompareAndSwap(callQueued, callRunning) {
				p.reclaim(c) // It was given up before it began.
				continue
			}
			start := nanotime()
			c.begun.Store(start)
			err := p.perform(c)
			took := nanotime() - start
			d.ended.Add(1)
			if c.kind == callGet {
				d.gets.add(took)
			} else {
				d.puts.add(took)
			}
			c.err = err
			if c.state.CompareAndSwap(callRunning, callDone) {
				c.done <- struct{}{}
				continue
			}
			p.reclaim(c)
		case <-p.ended:
			return
		}
	}
}

// perform does what a call asks for.
func (p *Pager) perform(c *call) error {
	switch c.kind {
	case callGet:
		return p.opts.Store.Get(c, c.page, c.buf)
	case callPut:
		return p.opts.Store.Put(c, c.disk.level, c.page, c.buf, p.opts.Kind(c.page))
	default:
		return p.opts.Store.Move(c, c.page, c.disk.level)
	}
}

// reclaim takes back what an abandoned call worked in.
func (p *Pager) reclaim(c *call) {
	if c.stage != nil {
		p.putStage(c.stage)
		c.stage = nil
	}
	if c.frame != nil {
		c.frame.memory.release(c.frame)
		c.frame = nil
	}
	c.disk.depth.Add(-1)
}

// begin hands a call to a tier of the store. The caller then waits for it with end.
func (p *Pager) begin(ctx context.Context, kind callKind, d *disk, page uint64, buf []byte) (*call, error) {
	if !d.breaker.allow(time.Now()) {
		return nil, d.leftAlone()
	}
	c, _ := p.callPool.Get().(*call)
	if c == nil {
		c = &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	}
	c.Context, c.kind, c.disk, c.page, c.buf, c.err, c.stage, c.frame = ctx, kind, d, page, buf, nil, nil, nil
	c.state.Store(callQueued)
	c.timer.Reset(p.opts.Breaker.Stall)
	d.depth.Add(1)
	select {
	case d.calls <- c:
		return c, nil
	case <-ctx.Done():
	case <-p.ended:
	}
	d.breaker.withdraw()
	d.depth.Add(-1)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, tiers.ErrClosed
}

// end waits for a call, for the end of its context, or until the medium has stalled for too long,
// and reports the outcome to the tier's breaker. abandoned says that the call keeps its buffers.
func (p *Pager) end(c *call) (abandoned bool, err error) {
	d := c.disk
	seen := d.ended.Load()
	stalled := false
	for !stalled {
		select {
		case <-c.done:
			err = c.err
			p.report(d, err, c.Context)
			d.depth.Add(-1)
			c.timer.Stop()
			c.Context, c.buf, c.stage, c.frame = nil, nil, nil, nil
			p.callPool.Put(c)
			return false, err
		case <-c.timer.C:
			now := d.ended.Load()
			rest := p.opts.Breaker.Stall - time.Duration(nanotime()-c.begun.Load())
			switch running := c.state.Load() == callRunning; {
			case running && rest > 0:
				c.timer.Reset(rest)
			case !running && now != seen:
				seen = now
				c.timer.Reset(p.opts.Breaker.Stall)
			default:
				stalled = true
			}
		case <-c.Done():
			stalled = true
		}
	}
	over := c.Context.Err()
	if !c.state.CompareAndSwap(callQueued, callAbandoned) && !c.state.CompareAndSwap(callRunning, callAbandoned) {
		<-c.done // It was just done after all.
		err = c.err
		p.report(d, err, c.Context)
		d.depth.Add(-1)
		return false, err
	}
	if over != nil {
		d.breaker.withdraw() // Nobody knows; the next call finds out.
		return true, over
	}
	d.failed.Add(1)
	d.breaker.trip(time.Now())
	return true, fmt.Errorf("%s did not answer for %v: %w: %w", d.Name, p.opts.Breaker.Stall, tiers.ErrUnavailable,
		tiers.ErrMedium)
}

// report tells the breaker of a tier how a call on it ended. What concerns one page, or the caller,
// is no failure of the tier.
func (p *Pager) report(d *disk, err error, ctx context.Context) { //nolint:revive // The context is one of what it judges by.
	if err != nil && ctx.Err() != nil {
		d.breaker.withdraw()
		return
	}
	fine := err == nil || errors.Is(err, tiers.ErrFull) || errors.Is(err, tiers.ErrNotFound) ||
		errors.Is(err, tiers.ErrLost) ||
		errors.Is(err, tiers.ErrCorrupt) || errors.Is(err, tiers.ErrClosed)
	if !fine {
		d.failed.Add(1)
	}
	d.breaker.report(fine, time.Now())
}

// stage waits for a buffer of one page. There is a fixed number of them, so that what moves at once
// stays bounded; a caller holds one at a time and frees it without waiting for another.
func (p *Pager) stage(ctx context.Context) ([]byte, error) {
	var b []byte
	select {
	case b = <-p.stages:
	default:
		select {
		case b = <-p.stages:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if b != nil {
		return b, nil
	}
	b, err := p.makeStage()
	if err != nil {
		p.stages <- nil
		return nil, fmt.Errorf("staging buffer: %w", err)
	}
	return b, nil
}

// makeStage makes a buffer at its first use: a Pager that never moves a page through the processor
// takes no memory for it.
func (p *Pager) makeStage() ([]byte, error) {
	if p.stager != nil {
		return p.stager.Stage()
	}
	return make([]byte, p.opts.PageSize), nil
}

// putStage gives a buffer back.
func (p *Pager) putStage(b []byte) {
	select {
	case p.stages <- b:
	default: // It was replaced when its call was abandoned.
	}
}

// replaceStage makes up for a buffer that an abandoned call keeps.
func (p *Pager) replaceStage() { p.putStage(make([]byte, p.opts.PageSize)) }

// beginPut copies a frame's page into a buffer and hands it to the first tier of the store from one
// on whose breaker lets it. The page does not change meanwhile: the caller has claimed it, or keeps
// writers out.
func (p *Pager) beginPut(ctx context.Context, f *frame, from int) (*call, error) {
	var errs []error
	for _, d := range p.disks[min(from, len(p.disks)):] {
		if d.breaker.open(time.Now()) {
			errs = append(errs, d.leftAlone())
			continue
		}
		b, err := p.stage(ctx)
		if err != nil {
			return nil, err
		}
		if err := p.readFrame(f, b); err != nil {
			p.putStage(b)
			return nil, err
		}
		c, err := p.begin(ctx, callPut, d, f.page.Load(), b)
		if err == nil {
			c.stage = b
			return c, nil
		}
		p.putStage(b)
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

// endPut waits for a put, and tries the tiers below when it fails.
func (p *Pager) endPut(ctx context.Context, f *frame, c *call, err error) (*disk, error) {
	var errs []error
	for next := 0; ; {
		if c != nil {
			d, b := c.disk, c.stage
			abandoned, callErr := p.end(c)
			if abandoned {
				p.replaceStage()
			} else {
				p.putStage(b)
			}
			if callErr == nil {
				return d, nil
			}
			err, next = callErr, d.level+1
		} else {
			next = len(p.disks)
		}
		errs = append(errs, err)
		if ctx.Err() != nil || next >= len(p.disks) {
			return nil, fmt.Errorf("no tier takes page %d: %w", f.page.Load(), errors.Join(errs...))
		}
		c, err = p.beginPut(ctx, f, next)
	}
}

// put copies a frame's page into the first tier of the store that takes it.
func (p *Pager) put(ctx context.Context, f *frame) (*disk, error) {
	c, err := p.beginPut(ctx, f, 0)
	return p.endPut(ctx, f, c, err)
}
