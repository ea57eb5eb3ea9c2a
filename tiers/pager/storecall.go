package pager

// This file runs the calls of a page manager to its store, on workers that a stalled medium may
// hold up.
//
// Each tier of the store has a queue, up to four workers and a circuit breaker. Begin hands a call
// to a worker, which ends when the queue is empty, and End waits for it. A medium that stalls
// blocks the worker that runs the call, but not the goroutine in End, which abandons the call after
// Stall. What an abandoned call may still touch, a staging buffer or a frame, stays the call's own
// until the medium has answered; the worker gives it back then.
//
// No lock is held while the store is called. A worker takes no lock of its caller but the one that
// Frame.Release takes, so a caller may hold any other lock in End.

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

type storeOp uint8

// The operations: to read a page into a buffer, to write a page from one, and to move a page to
// another tier of the store, without a buffer.
const (
	opGet storeOp = iota
	opPut
	opMove
)

// The states of a call. It goes from queued to running to done, and from queued or running to
// abandoned.
const (
	stateQueued int32 = iota
	stateRunning
	stateDone
	stateAbandoned
)

// workers is the number of calls that run at once on each tier of the store: package pagestore's
// benchmarks reach the rate of a disk with two, and codecs take a core each.
const workers = 4

// callFrame is a frame that a call fills.
type callFrame interface {
	// Release gives the frame back to its tier, empty.
	Release()
}

// storeCall is one read, write or move. Calls are reused: a caller must not use one after End.
type storeCall struct {
	Disk *storeQueue
	// Stage and Frame, when set, are what the call works in. The caller of Begin sets them before
	// End; if End abandons the call, the worker gives them back.
	Stage []byte
	Frame callFrame

	op    storeOp
	page  uint64
	buf   []byte
	state atomic.Int32
	begun atomic.Int64 // when a worker took it, by nanotime
	err   error
	done  chan struct{} // has room for one
	timer *time.Timer
}

// workContext is the context in which a call works: the context of its caller, canceled also when
// the call is abandoned.
type workContext struct {
	context.Context //nolint:containedctx // it is a context itself
	state           *atomic.Int32
}

func (w workContext) Err() error {
	if w.state.Load() == stateAbandoned {
		return context.DeadlineExceeded
	}
	return w.Context.Err()
}

// storeQueue is a tier of the store. Its counters may be read at any time.
type storeQueue struct {
	Name    string
	Level   int // the tier's number in the store
	Breaker *breaker
	// Depth is the number of calls that run or wait, Failed counts calls that failed or stalled.
	Depth  atomic.Int64
	Failed atomic.Uint64
	// Gets and Puts are how long reads took, and writes and moves into the tier.
	Gets, Puts tiers.Histogram

	calls   chan func()
	workers atomic.Int32
	ended   atomic.Uint64 // calls that came to an end: a queue that moves has not stalled
}

func (d *storeQueue) CircuitOpen() error {
	return fmt.Errorf("%s: %w: %w", d.Name, tiers.ErrUnavailable, tiers.ErrMedium)
}

type callOptions struct {
	Store   tiers.Store
	Names   []string                // of the tiers of Store, all of them
	Kind    func(uint64) tiers.Kind // how a page is encoded on disk
	Breaker BreakerOptions          // with its defaults
	Staging *stagingBuffers         // takes the buffers of abandoned calls back
	Ended   <-chan struct{}         // closed to end the workers
}

// storeCaller calls a store. All methods may be called from several goroutines at once.
type storeCaller struct {
	// Disks are the tiers of the store, in its order. The slice does not change.
	Disks []*storeQueue

	opts callOptions
	pool sync.Pool // *Call
	mu   sync.Mutex
	over bool // no worker begins any more; guarded by mu
	work sync.WaitGroup
}

// Its calls end when opts.Ended is closed, see Wait. With a nil store there are no Disks, and no
// call may be made.
func newCaller(opts callOptions) *storeCaller {
	c := &storeCaller{opts: opts}
	for level, name := range opts.Names {
		d := &storeQueue{Name: name, Level: level, Breaker: newBreaker(opts.Breaker), calls: make(chan func(), workers)}
		c.Disks = append(c.Disks, d)
	}
	return c
}

// Wait waits for the workers to end, after opts.Ended was closed. A medium that stalls holds it up.
func (c *storeCaller) Wait() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.work.Wait()
}

// staff begins a worker for a queue that has a call, unless there are enough.
func (c *storeCaller) staff(d *storeQueue) {
	if !d.hire() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		d.workers.Add(-1)
		return
	}
	c.work.Go(func() { c.serve(d) })
}

// hire counts a worker in, if there are fewer than workers.
func (d *storeQueue) hire() bool {
	for n := d.workers.Load(); n < workers; n = d.workers.Load() {
		if d.workers.CompareAndSwap(n, n+1) {
			return true
		}
	}
	return false
}

// serve runs calls of a tier until there is none, or Ended is closed.
func (c *storeCaller) serve(d *storeQueue) {
	for {
		select {
		case <-c.opts.Ended:
			d.workers.Add(-1)
			return
		default:
		}
		select {
		case call := <-d.calls:
			call()
			continue
		default:
		}
		// A call that was queued while it still counted found enough workers.
		if d.workers.Add(-1); len(d.calls) == 0 || !d.hire() {
			return
		}
	}
}

func (c *storeCaller) run(ctx context.Context, call *storeCall) {
	if !call.state.CompareAndSwap(stateQueued, stateRunning) {
		c.reclaim(call)
		return
	}
	d, start := call.Disk, nanotime()
	call.begun.Store(start)
	err := c.perform(workContext{ctx, &call.state}, call)
	took := nanotime() - start
	d.ended.Add(1)
	if call.op == opGet {
		d.Gets.Add(took)
	} else {
		d.Puts.Add(took)
	}
	call.err = err
	if call.state.CompareAndSwap(stateRunning, stateDone) {
		call.done <- struct{}{}
		return
	}
	c.reclaim(call)
}

func (c *storeCaller) perform(ctx context.Context, call *storeCall) error {
	switch call.op {
	case opGet:
		return c.opts.Store.Get(ctx, call.page, call.buf)
	case opPut:
		return c.opts.Store.Put(ctx, call.Disk.Level, call.page, call.buf, c.opts.Kind(call.page))
	default:
		return c.opts.Store.Move(ctx, call.page, call.Disk.Level)
	}
}

// reclaim takes back the buffer and the frame of an abandoned call.
func (c *storeCaller) reclaim(call *storeCall) {
	if call.Stage != nil {
		c.opts.Staging.Put(call.Stage)
		call.Stage = nil
	}
	if call.Frame != nil {
		call.Frame.Release()
		call.Frame = nil
	}
	call.Disk.Depth.Add(-1)
}

// Begin hands a call to a tier of the store: to read a page into buf, to write it from buf to the
// tier, or to move it there. buf belongs to the call until End, and longer if End abandons it.
// Begin waits for a place in the queue. It fails without a call if the breaker is open, if no call
// of the tier ends for Stall, or when ctx ends or Ended is closed.
func (c *storeCaller) Begin(
	ctx context.Context, op storeOp, d *storeQueue, page uint64, buf []byte,
) (*storeCall, error) {
	if !d.Breaker.Allow(time.Now()) {
		return nil, d.CircuitOpen()
	}
	call, _ := c.pool.Get().(*storeCall)
	if call == nil {
		call = &storeCall{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
	}
	call.op, call.Disk, call.page, call.buf, call.err, call.Stage, call.Frame = op, d, page, buf, nil, nil, nil
	call.state.Store(stateQueued)
	call.timer.Reset(c.opts.Breaker.Stall)
	d.Depth.Add(1)
	work := func() { c.run(ctx, call) }
	for seen, waiting := d.ended.Load(), true; waiting; {
		select {
		case d.calls <- work:
			c.staff(d)
			call.timer.Reset(c.opts.Breaker.Stall) // the wait for a place is not the medium's
			return call, nil
		case <-call.timer.C:
			now := d.ended.Load()
			if now == seen { // no call ended, so the medium stalls
				d.Depth.Add(-1)
				return nil, d.stalled(c.opts.Breaker.Stall)
			}
			seen = now
			call.timer.Reset(c.opts.Breaker.Stall)
		case <-ctx.Done():
			waiting = false
		case <-c.opts.Ended:
			waiting = false
		}
	}
	d.Breaker.Withdraw()
	d.Depth.Add(-1)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, tiers.ErrClosed
}

// End waits for a call, for the end of ctx, the context that Begin had, or until the medium has
// stalled for too long. It reports the outcome to the tier's breaker. abandoned reports whether the
// call keeps its buffers: its Stage is to be replaced, and its Frame is lost to the caller.
func (c *storeCaller) End(ctx context.Context, call *storeCall) (abandoned bool, err error) {
	d := call.Disk
	seen := d.ended.Load()
	stalled := false
	for !stalled {
		select {
		case <-call.done:
			err = call.err
			d.report(ctx, err)
			d.Depth.Add(-1)
			call.timer.Stop()
			call.buf, call.Stage, call.Frame = nil, nil, nil
			c.pool.Put(call)
			return false, err
		case <-call.timer.C:
			now := d.ended.Load()
			rest := c.opts.Breaker.Stall - time.Duration(nanotime()-call.begun.Load())
			switch running := call.state.Load() == stateRunning; {
			case running && rest > 0:
				call.timer.Reset(rest)
			case !running && now != seen:
				seen = now
				call.timer.Reset(c.opts.Breaker.Stall)
			default:
				stalled = true
			}
		case <-ctx.Done():
			stalled = true
		}
	}
	over := ctx.Err()
	if !call.state.CompareAndSwap(stateQueued, stateAbandoned) &&
		!call.state.CompareAndSwap(stateRunning, stateAbandoned) {
		<-call.done // It was just done after all.
		err = call.err
		d.report(ctx, err)
		d.Depth.Add(-1)
		return false, err
	}
	if over != nil {
		d.Breaker.Withdraw() // The outcome is unknown; the next call finds out.
		return true, over
	}
	return true, d.stalled(c.opts.Breaker.Stall)
}

// stalled opens the circuit of a tier that did not answer for a time, and returns the error.
func (d *storeQueue) stalled(after time.Duration) error {
	d.Failed.Add(1)
	d.Breaker.Trip(time.Now())
	return fmt.Errorf("%s did not answer for %v: %w: %w", d.Name, after, tiers.ErrUnavailable, tiers.ErrMedium)
}

// report tells the breaker of the tier how a call ended. An error that concerns one page, or the
// caller, is no failure of the tier.
func (d *storeQueue) report(ctx context.Context, err error) {
	if err != nil && ctx.Err() != nil {
		d.Breaker.Withdraw()
		return
	}
	fine := err == nil || errors.Is(err, tiers.ErrFull) || errors.Is(err, tiers.ErrNotFound) ||
		errors.Is(err, tiers.ErrLost) ||
		errors.Is(err, tiers.ErrCorrupt) || errors.Is(err, tiers.ErrClosed)
	if !fine {
		d.Failed.Add(1)
	}
	d.Breaker.Report(fine, time.Now())
}

// start is the origin of nanotime.
var start = time.Now()

func nanotime() int64 { return int64(time.Since(start)) }

// stagingBuffers is a fixed number of staging buffers of one page, which bounds how much moves at
// once. All methods may be called from several goroutines at once. A caller holds one buffer at a
// time and gives it back without waiting for another.
type stagingBuffers struct {
	free     chan []byte // nil stands for a buffer that is to be made
	stager   tiers.Stager
	pageSize int
}

// newStaging returns n buffers of pageSize bytes. They are made at their first use, by stager
// unless it is nil: a caller that never moves a page through the processor takes no memory for
// them.
func newStaging(n, pageSize int, stager tiers.Stager) *stagingBuffers {
	s := &stagingBuffers{free: make(chan []byte, n), stager: stager, pageSize: pageSize}
	for range n {
		s.free <- nil
	}
	return s
}

// Take waits for a buffer, or for the end of ctx. The caller owns the buffer until Put.
func (s *stagingBuffers) Take(ctx context.Context) ([]byte, error) {
	var b []byte
	select {
	case b = <-s.free:
	default:
		select {
		case b = <-s.free:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if b != nil {
		return b, nil
	}
	b, err := s.create()
	if err != nil {
		s.free <- nil
		return nil, fmt.Errorf("staging buffer: %w", err)
	}
	return b, nil
}

func (s *stagingBuffers) create() ([]byte, error) {
	if s.stager != nil {
		return s.stager.Stage()
	}
	return make([]byte, s.pageSize), nil
}

// Put gives a buffer back.
func (s *stagingBuffers) Put(b []byte) {
	select {
	case s.free <- b:
	default: // It was replaced when its call was abandoned.
	}
}

// Replace makes up for a buffer that an abandoned call keeps.
func (s *stagingBuffers) Replace() { s.Put(make([]byte, s.pageSize)) }
