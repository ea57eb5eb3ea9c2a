package pager

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

type store struct {
	tiers.Store
	f func(ctx context.Context, page uint64) error
}

func (s store) Get(ctx context.Context, page uint64, _ []byte) error { return s.f(ctx, page) }

func (s store) Put(ctx context.Context, _ int, page uint64, _ []byte, _ tiers.Kind) error {
	return s.f(ctx, page)
}

func (s store) Move(ctx context.Context, page uint64, _ int) error { return s.f(ctx, page) }

// openCaller returns the only tier of a Caller that the test's end stops.
func openCaller(t *testing.T, stall time.Duration, f func(ctx context.Context, page uint64) error) (
	*storeCaller, *storeQueue, *stagingBuffers,
) {
	t.Helper()
	ended, staging := make(chan struct{}), newStaging(2, 8, nil)
	c := newCaller(callOptions{
		Store: store{f: f}, Names: []string{"disk"}, Kind: func(uint64) tiers.Kind { return tiers.Kind{} },
		Breaker: BreakerOptions{Stall: stall}.WithDefaults(), Staging: staging, Ended: ended,
	})
	t.Cleanup(func() {
		close(ended)
		c.Wait()
	})
	return c, c.Disks[0], staging
}

type testFrame chan struct{}

func (f testFrame) Release() { close(f) }

// TestOutcome: End returns the error of the call, and only errors of the medium count as failures.
func TestOutcome(t *testing.T) {
	broken := errors.New("broken")
	for i, test := range []struct {
		err    error
		failed uint64
	}{{nil, 0}, {tiers.ErrFull, 0}, {tiers.ErrNotFound, 0}, {tiers.ErrCorrupt, 0}, {tiers.ErrLost, 0}, {broken, 1}} {
		c, d, _ := openCaller(t, time.Minute, func(context.Context, uint64) error { return test.err })
		for _, op := range []storeOp{opGet, opPut, opMove} {
			call, err := c.Begin(t.Context(), op, d, 1, nil)
			if err != nil {
				t.Fatalf("case %d: begin: %v", i, err)
			}
			if abandoned, err := c.End(t.Context(), call); abandoned || !errors.Is(err, test.err) {
				t.Errorf("case %d: abandoned %v, error %v, want %v", i, abandoned, err, test.err)
			}
		}
		if n := d.Failed.Load(); n != 3*test.failed || d.Breaker.Open(time.Now()) != (test.failed > 0) {
			t.Errorf("case %d: %d failures, open %v", i, n, d.Breaker.Open(time.Now()))
		}
		if r, w := d.Gets.Read().Count(), d.Puts.Read().Count(); r != 1 || w != 2 || d.Depth.Load() != 0 {
			t.Errorf("case %d: %d reads, %d writes and moves, depth %d", i, r, w, d.Depth.Load())
		}
	}
}

// TestStall: a call that stalls is abandoned and opens the circuit. Its context is over then, and
// its buffer and its testFrame come back when the medium answers.
func TestCallStalls(t *testing.T) {
	answer, over := make(chan struct{}), make(chan error, 1)
	c, d, staging := openCaller(t, 10*time.Millisecond, func(ctx context.Context, _ uint64) error {
		<-answer
		over <- ctx.Err()
		return nil
	})
	b, err := staging.Take(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	call, err := c.Begin(t.Context(), opGet, d, 1, b)
	if err != nil {
		t.Fatal(err)
	}
	released := make(testFrame)
	call.Stage, call.Frame = b, released
	if abandoned, err := c.End(t.Context(), call); !abandoned || !errors.Is(err, tiers.ErrUnavailable) {
		t.Fatalf("abandoned %v, error %v", abandoned, err)
	}
	if _, err := c.Begin(t.Context(), opGet, d, 2, nil); !errors.Is(err, tiers.ErrMedium) {
		t.Errorf("a call after a stall: %v", err)
	}
	select {
	case <-released:
		t.Error("the testFrame came back before the medium answered")
	default:
	}
	close(answer)
	if err := <-over; !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the context of an abandoned call: %v", err)
	}
	<-released
	for range 2 {
		if _, err := staging.Take(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestGiveUp: a call whose caller gives up is abandoned and is no failure of the tier.
func TestGiveUp(t *testing.T) {
	answer := make(chan struct{})
	c, d, _ := openCaller(t, time.Minute, func(context.Context, uint64) error { <-answer; return nil })
	defer close(answer)
	ctx, cancel := context.WithCancel(t.Context())
	call, err := c.Begin(ctx, opPut, d, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if abandoned, err := c.End(ctx, call); !abandoned || !errors.Is(err, context.Canceled) {
		t.Errorf("abandoned %v, error %v", abandoned, err)
	}
	if d.Failed.Load() != 0 || d.Breaker.Open(time.Now()) {
		t.Errorf("%d failures, open %v", d.Failed.Load(), d.Breaker.Open(time.Now()))
	}
}

// slow simulates a directory that takes some time for a call.
func slow(d time.Duration) func(context.Context, uint64) error {
	return func(ctx context.Context, _ uint64) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// calls makes n calls at once and returns a channel with their results.
func calls(t *testing.T, c *storeCaller, d *storeQueue, n uint64) <-chan error {
	t.Helper()
	ended := make(chan error, n)
	for page := range n {
		go func() {
			call, err := c.Begin(t.Context(), opMove, d, page, nil)
			if err == nil {
				_, err = c.End(t.Context(), call)
			}
			if err != nil {
				err = fmt.Errorf("page %d: %w", page, err)
			}
			ended <- err
		}()
	}
	return ended
}

// TestQueue: the time that a call waits in the queue does not count for its stall.
func TestQueue(t *testing.T) { synctest.Test(t, testQueue) }

func testQueue(t *testing.T) {
	c, d, _ := openCaller(t, 500*time.Millisecond, slow(300*time.Millisecond))
	const n = 8 // each of the four workers makes two
	ended := calls(t, c, d, n)
	for range n {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestWaitForPlace: the time that a call waits for a place in the queue is not its stall either,
// and a queue that does not move at all fails a call after the stall, and not when its caller gives
// up.
func TestWaitForPlace(t *testing.T) { synctest.Test(t, testWaitForPlace) }

func testWaitForPlace(t *testing.T) {
	c, d, _ := openCaller(t, 250*time.Millisecond, slow(60*time.Millisecond))
	const n = 40 // the last one waits for half a second
	ended := calls(t, c, d, n)
	for range n {
		if err := <-ended; err != nil {
			t.Errorf("a call of a queue that moves: %v", err)
		}
	}

	answer := make(chan struct{})
	defer close(answer)
	c, d, _ = openCaller(t, 50*time.Millisecond, func(context.Context, uint64) error { <-answer; return nil })
	for page := range uint64(8) { // four workers, and four places in the queue
		if _, err := c.Begin(t.Context(), opMove, d, page, nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Begin(ctx, opMove, d, 9, nil); !errors.Is(err, tiers.ErrMedium) || ctx.Err() != nil {
		t.Errorf("a call that finds no place: %v, want %v after the stall", err, tiers.ErrMedium)
	}
	if !d.Breaker.Open(time.Now()) {
		t.Error("the circuit of a tier that stalls is closed")
	}
}

// TestStagingWaits: Take waits for a buffer until its context ends, and Replace makes up for one
// that does not come back.
func TestStagingWaits(t *testing.T) {
	s := newStaging(1, 8, nil)
	b, err := s.Take(t.Context())
	if err != nil || len(b) != 8 {
		t.Fatalf("%d bytes, %v", len(b), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := s.Take(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("no buffer is free: %v", err)
	}
	s.Replace()
	s.Put(b) // Its place is taken: it is dropped.
	if _, err := s.Take(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Take(ctx); err == nil {
		t.Error("two buffers of one")
	}
}
