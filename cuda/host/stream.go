package host

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// depth is the number of operations that a stream holds before calls wait, about as in a CUDA
// stream.
const depth = 1024

// stream is one goroutine that makes the operations of its queue in order. The device has it in its
// list of handles. The goroutine ends when the queue is closed and empty. Calls are checked before
// they are queued, so queued work fails only if a kernel panics.
type stream struct {
	dev        *Device
	background bool // launches of other streams go first

	mu        sync.Mutex // guards closed, recording and the sending end of queue
	closed    bool
	recording *graph // what Capture records into; nil outside it
	queue     chan operation
	done      chan struct{} // closed by the goroutine when it ends

	told atomic.Bool // a call has returned the error that broke the device
}

// step is one piece of work. A graph makes it any number of times. It is left out on a broken
// device.
type step func() *failure

// operation is one entry of the queue: a step, and a mark, which is called after it, also on a
// broken device. Either may be nil.
type operation struct {
	step step
	mark func()
}

// newStream starts the goroutine of a stream.
func newStream(d *Device, background bool) *stream {
	s := &stream{dev: d, background: background, queue: make(chan operation, depth), done: make(chan struct{})}
	go s.run()
	return s
}

// run makes the queued operations in order. After a failure it makes no further steps on the
// device, but still calls the marks, so that nobody waits forever.
func (s *stream) run() {
	defer close(s.done)
	if s.background {
		// Its long work has a thread of its own, which the system then takes from a core before threads
		// that have waited.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
	}
	for op := range s.queue {
		// On a broken device the steps are left out and the marks are not.
		if op.step != nil && s.dev.broken.Load() == nil {
			if f := op.step(); f != nil {
				s.dev.broken.CompareAndSwap(nil, &f.err)
				s.dev.log.Error("kernel panicked", "err", f.err, "stack", string(f.stack))
			}
		}
		if op.mark != nil {
			op.mark()
		}
	}
}

// put queues a step, or records it, with the memory that it uses, while the stream captures. It
// waits if the queue is full.
func (s *stream) put(op string, work step, mem ...device.Sized) error {
	if err := s.health(op); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: stream: %w", op, device.ErrClosed)
	}
	if s.recording != nil { // the work is for the graph only
		s.recording.steps = append(s.recording.steps, work)
		s.recording.mem = append(s.recording.mem, mem...)
		return nil
	}
	s.queue <- operation{step: work}
	return nil
}

// capturing reports whether put records. No other goroutine uses the stream while it does.
func (s *stream) capturing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recording != nil
}

// queueOp queues an operation that cannot be captured.
func (s *stream) queueOp(ctx context.Context, op string, o operation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return fmt.Errorf("%s: stream: %w", op, device.ErrClosed)
	}
	if s.recording != nil {
		return s.refuse(fmt.Errorf("%s in a capture: %w", op, device.ErrInvalidArgument))
	}
	select {
	case s.queue <- o:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s on host: %w", op, ctx.Err())
	}
}

// note returns err. Inside a capture it also records the first error, which Capture then returns.
func (s *stream) note(err error) error {
	if err == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuse(err)
}

// refuse is note with s.mu held.
func (s *stream) refuse(err error) error {
	if s.recording != nil && s.recording.err == nil {
		s.recording.err = err
	}
	return err
}

// Launch checks a launch and queues it. A wrong launch changes nothing.
func (s *stream) Launch(k device.Kernel, g device.Geometry, args ...device.Arg) error {
	if err := s.launch(k, g, args); err != nil {
		return s.note(err)
	}
	s.dev.traffic.Launched()
	return nil
}

func (s *stream) launch(k device.Kernel, g device.Geometry, args []device.Arg) error {
	hk, ok := k.(*kernel)
	if !ok || hk == nil || hk.dev != s.dev {
		return fmt.Errorf("launch on host: a kernel of another device: %w", device.ErrInvalidArgument)
	}
	if err := device.CheckFlat(hk.name, g, &s.dev.props); err != nil {
		return err
	}
	if err := hk.src.Fits(g); err != nil {
		return err
	}
	if err := device.CheckArgs(hk.name, hk.sig, args); err != nil {
		return err
	}
	// The memory is looked up now, so that a buffer which is closed later stays usable for this
	// launch.
	values := scratch.Get().(*[]kernels.Value)
	defer scratch.Put(values)
	*values = append((*values)[:0], make([]kernels.Value, len(args))...)
	var used []device.Sized // by a graph
	captured := s.capturing()
	for i, a := range args {
		if a.Kind() != device.KindBuffer {
			(*values)[i].Bits = a.Bits()
			continue
		}
		off, n := a.Span()
		mem, err := s.dev.span(a.Memory(), off, n, false)
		if err != nil {
			return fmt.Errorf("launch %s: argument %d (%s): %w", hk.name, i, hk.sig[i].Name, err)
		}
		(*values)[i].Mem = mem
		if captured {
			used = append(used, a.Memory())
		}
	}
	work := hk.twin.Bind(*values)
	clear(*values)
	return s.put("launch "+hk.name, func() *failure {
		return s.dev.pool.run(&grid{
			kernel: hk.name, launch: work, blocks: g.Grid, threads: g.Block, background: s.background,
		})
	}, used...)
}

// scratch has lists of arguments for launches, which need them until they are bound.
var scratch = sync.Pool{New: func() any { return new([]kernels.Value) }}

// Sync waits for all work that is queued so far, or for the end of ctx, and returns the error of a
// broken device.
func (s *stream) Sync(ctx context.Context) error {
	reached := make(chan struct{})
	if err := s.queueOp(ctx, "sync", operation{mark: func() { close(reached) }}); err != nil {
		return err
	}
	select {
	case <-reached:
		return s.health("sync")
	case <-ctx.Done():
		return fmt.Errorf("sync on host: %w", ctx.Err())
	}
}

// Await waits for all queued work and then checks the word. Polling the word as a GPU's host does
// would gain nothing here.
func (s *stream) Await(ctx context.Context, flag device.HostBuffer, off int64, want uint32) error {
	if err := device.CheckWord("await", flag, off); err != nil {
		return s.note(err)
	}
	mem, err := s.dev.span(flag, off, 4, false)
	if err != nil {
		return s.note(fmt.Errorf("await: %w", err))
	}
	if err := s.Sync(ctx); err != nil {
		return err
	}
	if got := device.Of[uint32](mem)[0]; got != want {
		return fmt.Errorf("await: the work is done and the word at %d is %d, not %d: %w", off, got, want,
			device.ErrInvalidArgument)
	}
	return nil
}

// health returns the error of a broken device, nil otherwise, and remembers that a call has
// returned it.
func (s *stream) health(op string) error {
	err := s.dev.health(op)
	if err != nil {
		s.told.Store(true)
	}
	return err
}

// Close waits for the queued work and ends the goroutine. It returns an error of that work unless
// an earlier call has returned it.
func (s *stream) Close() error {
	s.mu.Lock()
	if s.recording != nil {
		defer s.mu.Unlock()
		return s.refuse(fmt.Errorf("close a stream in a capture: %w", device.ErrInvalidArgument))
	}
	if s.closed { // a second Close waits for the first
		s.mu.Unlock()
		<-s.done
		return nil
	}
	s.closed = true
	close(s.queue)
	s.mu.Unlock()
	<-s.done
	s.dev.forget(s)
	if s.told.Load() { // the owner knows of the error
		return nil
	}
	return s.dev.health("close a stream")
}
