package devicetest

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// testEventOrder hands a buffer back and forth between two streams, which only events keep in
// order. Without the waits a stream would add to a sum that the other stream still computes.
func testEventOrder(t *testing.T, open launches.Opener) {
	const n, rounds = 50_000, 60
	d := launches.Open(t, open)
	fill, add := launches.FindKernel(t, d, "fill_u32"), launches.FindKernel(t, d, "vector_add_f32")
	one := launches.Alloc(t, d, 4*n)
	streams := []device.Stream{launches.NewStream(t, d), launches.NewStream(t, d)}
	events := []device.Event{launches.NewEvent(t, d), launches.NewEvent(t, d)}
	sum, next := launches.Alloc(t, d, 4*n), launches.Alloc(t, d, 4*n)
	g := device.Geometry{Grid: 3, Block: 128}
	launches.Start(t, streams[1], fill, g, device.Ptr(one), device.Uint64(n), device.Uint32(0x3F800000))
	launches.Start(t, streams[1], fill, g, device.Ptr(sum), device.Uint64(n), device.Uint32(0))
	if err := streams[1].Record(events[1]); err != nil {
		t.Fatal(err)
	}
	for i := range rounds {
		s, mine, other := streams[i%2], events[i%2], events[1-i%2]
		if err := s.Wait(other); err != nil {
			t.Fatal(err)
		}
		launches.Start(t, s, add, g, device.Ptr(sum), device.Ptr(one), device.Ptr(next), device.Uint64(n))
		if err := s.Record(mine); err != nil {
			t.Fatal(err)
		}
		sum, next = next, sum
	}
	last := events[(rounds-1)%2]
	ctx, cancel := context.WithTimeout(context.Background(), launches.Patience)
	defer cancel()
	if err := last.Sync(ctx); err != nil {
		t.Fatal(err)
	}
	if done, err := last.Done(); err != nil || !done {
		t.Errorf("done %v after sync: %v", done, err)
	}
	for i, v := range device.Of[float32](launches.Download(t, sum)) {
		if v != rounds {
			t.Fatalf("element %d is %v, want %d", i, v, rounds)
		}
	}
}

// testEvents: an event that was never recorded is done, and waits for it end at once. Since needs
// two recorded events of one device. Streams may wait for events of other devices, but record only
// their own.
func testEvents(t *testing.T, open launches.Opener) {
	d, other := launches.Open(t, open), launches.Open(t, open)
	s := launches.NewStream(t, d)
	never, first, second := launches.NewEvent(t, d), launches.NewEvent(t, d), launches.NewEvent(t, d)
	foreign := launches.NewEvent(t, other)
	if done, err := never.Done(); err != nil || !done {
		t.Errorf("an event that was never recorded: done %v, %v", done, err)
	}
	if err := errors.Join(s.Wait(never), s.Wait(foreign), never.Sync(context.Background())); err != nil {
		t.Errorf("waits for events that were never recorded: %v", err)
	}
	b := launches.Alloc(t, d, 8<<20)
	if err := s.Record(first); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if err := s.Fill(b, 0, b.Size(), byte(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Record(second); err != nil {
		t.Fatal(err)
	}
	launches.Wait(t, s)
	took, err := second.Since(first)
	if err != nil || took < 0 || took > launches.Patience {
		t.Errorf("20 fills of 8 MiB took %v: %v", took, err)
	}
	if zero, err := first.Since(first); err != nil || zero != 0 {
		t.Errorf("%v since itself: %v", zero, err)
	}
	for _, pair := range [][2]device.Event{
		{first, never},
		{never, first},
		{first, foreign},
		{foreign, first},
		{first, nil},
	} {
		_, err := pair[0].Since(pair[1])
		launches.Want(t, "since", err, device.ErrInvalidArgument)
	}
	launches.Want(t, "record another device's event", s.Record(foreign), device.ErrInvalidArgument)
	launches.Want(t, "record nil", s.Record(nil), device.ErrInvalidArgument)
	launches.Want(t, "wait for nil", s.Wait(nil), device.ErrInvalidArgument)

	// Across devices.
	far := launches.NewStream(t, other)
	if err := errors.Join(far.Record(foreign), s.Wait(foreign), far.Wait(second)); err != nil {
		t.Error(err)
	}
	launches.Wait(t, s)
	launches.Wait(t, far)

	closed, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(closed.Close(), closed.Close()); err != nil {
		t.Error(err)
	}
	_, err = closed.Done()
	launches.Want(t, "done", err, device.ErrClosed)
	launches.Want(t, "sync", closed.Sync(context.Background()), device.ErrClosed)
	launches.Want(t, "record", s.Record(closed), device.ErrClosed)
	launches.Want(t, "wait", s.Wait(closed), device.ErrClosed)
	_, err = closed.Since(first)
	launches.Want(t, "since", err, device.ErrClosed)
}

// testGraph captures a sequence with every kind of work and replays it on changing data. A capture
// executes nothing. A replay is ordered with other work of its stream, may run on another stream of
// the device, and is refused by another device.
func testGraph(t *testing.T, open launches.Opener) {
	const n = 10_001
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	add := launches.FindKernel(t, d, "vector_add_f32")
	in, out := launches.AllocHost(t, d, 4*n), launches.AllocHost(t, d, 4*n)
	a, b := launches.Alloc(t, d, 4*n), launches.Alloc(t, d, 4*n)
	g, err := s.Capture(func() error {
		return errors.Join(
			s.Upload(a, 0, in, 0, 4*n),
			s.Copy(b, 0, a, 0, 4*n),
			s.Launch(add, device.Geometry{Grid: 3, Block: 64}, device.Ptr(a), device.Ptr(b), device.Ptr(b),
				device.Uint64(n)),
			s.Fill(a, 0, 4*n, 0),
			s.Download(out, 0, b, 0, 4*n))
	})
	if err != nil {
		t.Fatal(err)
	}
	if g.Len() != 5 {
		t.Errorf("%d operations, want 5", g.Len())
	}
	if n := launches.CountOther(launches.Download(t, b)); n != 0 {
		t.Errorf("the capture itself wrote %d bytes", n)
	}
	for round := range 20 {
		x := device.Of[float32](in.Bytes())
		for i := range x {
			x[i] = float32(round*i) / 3
		}
		if err := s.Replay(g); err != nil {
			t.Fatal(err)
		}
		launches.Wait(t, s)
		for i, v := range device.Of[float32](out.Bytes()) {
			if v != x[i]+x[i] {
				t.Fatalf("round %d: element %d is %v, want %v", round, i, v, x[i]+x[i])
			}
		}
	}
	if left := bytes.Count(launches.Download(t, a), []byte{0}); left != 4*n {
		t.Errorf("the fill reached %d bytes of %d", left, 4*n)
	}
	// Replays are ordered with other work of their stream.
	if err := errors.Join(s.Replay(g), s.Fill(b, 0, 4*n, 9), s.Download(out, 0, b, 0, 4*n)); err != nil {
		t.Fatal(err)
	}
	launches.Wait(t, s)
	if bytes.Count(out.Bytes(), []byte{9}) != 4*n {
		t.Error("a replay ran after what was put in behind it")
	}

	again := launches.NewStream(t, d) // another stream of the device
	if err := again.Replay(g); err != nil {
		t.Fatal(err)
	}
	launches.Wait(t, again)
	launches.Want(t, "another device's graph", launches.NewStream(t, launches.Open(t, open)).Replay(g),
		device.ErrInvalidArgument)
	launches.Want(t, "no graph", s.Replay(nil), device.ErrInvalidArgument)
	if err := errors.Join(g.Close(), g.Close()); err != nil {
		t.Error(err)
	}
	launches.Want(t, "a closed graph", s.Replay(g), device.ErrClosed)
}

// testCapture: calls that cannot be part of a graph fail inside a capture, and the capture fails
// with them even if the callback hides their error. After a failure, an error of the callback or a
// panic the stream works as before.
func testCapture(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	e, h := launches.NewEvent(t, d), launches.AllocHost(t, d, 64)
	b := launches.Alloc(t, d, 64)
	empty, err := s.Capture(func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Replay(empty); err != nil || empty.Len() != 0 {
		t.Errorf("an empty graph of %d operations: %v", empty.Len(), err)
	}
	launches.Wait(t, s)
	ctx := context.Background()
	// sound checks that the stream executes what it is given.
	sound := func() {
		t.Helper()
		if err := errors.Join(s.Fill(b, 0, 64, 3), s.Sync(ctx)); err != nil {
			t.Fatalf("the stream after a failed capture: %v", err)
		}
		if bytes.Count(launches.Download(t, b), []byte{3}) != 64 {
			t.Fatal("the stream still captures")
		}
	}
	for what, call := range map[string]func() error{
		"sync":    func() error { return s.Sync(ctx) },
		"await":   func() error { return s.Await(ctx, h, 0, 1) },
		"record":  func() error { return s.Record(e) },
		"wait":    func() error { return s.Wait(e) },
		"close":   s.Close,
		"replay":  func() error { return s.Replay(empty) },
		"capture": func() error { _, err := s.Capture(func() error { return nil }); return err },
		"range":   func() error { return s.Fill(b, 0, 65, 1) },
	} {
		for _, swallow := range []bool{false, true} {
			_, err := s.Capture(func() error {
				if err := s.Fill(b, 0, 64, 7); err != nil {
					return err
				}
				err := call()
				launches.Want(t, what+" in a capture", err, device.ErrInvalidArgument)
				if swallow {
					return nil
				}
				return err
			})
			launches.Want(t, "a capture with "+what, err, device.ErrInvalidArgument)
			sound()
		}
	}
	own := errors.New("own")
	_, err = s.Capture(func() error { return own })
	launches.Want(t, "an error of the callback", err, own)
	sound()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is gone")
			}
		}()
		_, _ = s.Capture(func() error { panic("in a capture") })
	}()
	sound()
	closed, err := d.Alloc(64, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Capture(func() error { return s.Fill(closed, 0, 64, 1) })
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	launches.Want(t, "replay with a closed buffer", s.Replay(g), device.ErrClosed)
	if err := errors.Join(g.Close(), empty.Close()); err != nil {
		t.Error(err)
	}
}

// testAwait: a kernel stores a word in host memory, and Await returns when the word has the awaited
// value. A word that no work of the stream stores is an error and no endless wait. The word must
// lie inside the memory, aligned to its size.
func testAwait(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	fill := launches.FindKernel(t, d, "fill_u32")
	h := launches.AllocHost(t, d, 64)
	words := device.Of[uint32](h.Bytes())
	ctx, cancel := context.WithTimeout(context.Background(), launches.Patience)
	defer cancel()
	for round := uint32(1); round < 50; round++ {
		launches.Start(t, s, fill, device.Geometry{Grid: 1, Block: 1}, device.Mapped(h, 16, 4), device.Uint64(1),
			device.Uint32(round))
		if err := s.Await(ctx, h, 16, round); err != nil {
			t.Fatal(err)
		}
	}
	launches.Wait(t, s)
	if words[3] != launches.Poison*0x01010101 || words[4] != 49 || words[5] != launches.Poison*0x01010101 {
		t.Errorf("words %x", words[3:6])
	}
	launches.Want(t, "a word that nothing stores", s.Await(ctx, h, 16, 4711), device.ErrInvalidArgument)
	launches.Want(t, "a word across", s.Await(ctx, h, 2, 1), device.ErrInvalidArgument)
	launches.Want(t, "a word outside", s.Await(ctx, h, 64, 1), device.ErrInvalidArgument)
	launches.Want(t, "no memory", s.Await(ctx, nil, 0, 1), device.ErrInvalidArgument)
	for what, arg := range map[string]device.Arg{
		"past": device.Mapped(h, 0, 65), "across": device.Mapped(h, 8, 4), "before": device.Mapped(h, -16, 4),
		"nil": device.Mapped(nil, 0, 4),
	} {
		launches.Want(t, what,
			s.Launch(fill, device.Geometry{Grid: 1, Block: 1}, arg, device.Uint64(1), device.Uint32(1)),
			device.ErrInvalidArgument)
	}
	short, stop := context.WithTimeout(ctx, time.Nanosecond)
	defer stop()
	if err := s.Await(short, h, 16, 4711); err == nil {
		t.Error("a wait without hope ended well")
	}
}
