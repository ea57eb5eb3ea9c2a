package devicetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// testOrder runs a long chain of launches on one stream. Each needs the result of its predecessor:
// a value doubles in a ring of two buffers.
func testOrder(t *testing.T, open launches.Opener) {
	const n, rounds = 10_000, 24 * 200
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	fill, add := launches.FindKernel(t, d, "fill_u32"), launches.FindKernel(t, d, "vector_add_f32")
	a, b := launches.Alloc(t, d, 4*n), launches.Alloc(t, d, 4*n)
	g := device.Geometry{Grid: 3, Block: 128}
	for i := range rounds {
		if i%24 == 0 { // 1.0, doubled 23 times, stays exact
			launches.Start(t, s, fill, g, device.Ptr(a), device.Uint64(n), device.Uint32(0x3F800000))
			continue
		}
		launches.Start(t, s, add, g, device.Ptr(a), device.Ptr(a), device.Ptr(b), device.Uint64(n))
		a, b = b, a
	}
	launches.Wait(t, s)
	for i, v := range device.Of[float32](launches.Download(t, a)) {
		if v != 1<<23 {
			t.Fatalf("element %d is %v after the chain, want %v", i, v, 1<<23)
		}
	}
	launches.Wait(t, s) // an empty stream is done
}

// testBackground: a background stream does its work in order, beside work of another stream and
// behind an event of it, and a stream that is opened after its end is one again.
func testBackground(t *testing.T, open launches.Opener) {
	const n = 10_000
	d := launches.Open(t, open)
	fill := launches.FindKernel(t, d, "fill_u32")
	g := device.Geometry{Grid: 3, Block: 128}
	for range 3 {
		s := launches.NewStream(t, d)
		behind, err := d.NewBackgroundStream()
		if err != nil {
			t.Fatalf("NewBackgroundStream: %v", err)
		}
		e := launches.NewEvent(t, d)
		first, second := launches.Alloc(t, d, 4*n), launches.Alloc(t, d, 4*n)
		for i := range 50 {
			launches.Start(t, s, fill, g, device.Ptr(first), device.Uint64(n), device.Uint32(uint32(i)))
			launches.Start(t, behind, fill, g, device.Ptr(second), device.Uint64(n), device.Uint32(uint32(i)))
		}
		if err := errors.Join(s.Record(e), behind.Wait(e)); err != nil {
			t.Fatal(err)
		}
		launches.Start(t, behind, fill, g, device.Ptr(first), device.Uint64(n/2), device.Uint32(50))
		if err := behind.Close(); err != nil {
			t.Fatalf("close a background stream: %v", err)
		}
		a, b := device.Of[uint32](launches.Download(t, first)), device.Of[uint32](launches.Download(t, second))
		for i := range a {
			want := uint32(49)
			if i < n/2 {
				want = 50
			}
			if a[i] != want || b[i] != 49 {
				t.Fatalf("word %d is %d and %d, want %d and 49", i, a[i], b[i], want)
			}
		}
	}
}

// testSyncContext: the end of a context ends a wait and not the work.
func testSyncContext(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	b := launches.Alloc(t, d, 4<<20)
	fill := launches.FindKernel(t, d, "fill_u32")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i := range 50 {
		launches.Start(t, s, fill, device.Geometry{Grid: 4, Block: 64}, device.Ptr(b), device.Uint64(1<<20),
			device.Uint32(uint32(i)))
	}
	if err := s.Sync(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
	launches.Wait(t, s) // the work was not cancelled
	for i, v := range device.Of[uint32](launches.Download(t, b)) {
		if v != 49 {
			t.Fatalf("word %d is %d", i, v)
		}
	}
}

// testClosedStream: Close waits for the work of the stream. Later calls are device.ErrClosed.
func testClosedStream(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	b := launches.Alloc(t, d, 4<<20)
	fill := launches.FindKernel(t, d, "fill_u32")
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	args := []device.Arg{device.Ptr(b), device.Uint64(1 << 20), device.Uint32(7)}
	g := device.Geometry{Grid: 2, Block: 32}
	for range 20 {
		launches.Start(t, s, fill, g, args...)
	}
	for i := range 2 { // Close waits for the work
		if err := s.Close(); err != nil {
			t.Errorf("close %d: %v", i, err)
		}
	}
	for i, v := range device.Of[uint32](launches.Download(t, b)) {
		if v != 7 {
			t.Fatalf("word %d is %d: Close did not wait", i, v)
		}
	}
	launches.Want(t, "launch", s.Launch(fill, g, args...), device.ErrClosed)
	launches.Want(t, "sync", s.Sync(context.Background()), device.ErrClosed)
}

// testConcurrent copies and launches in 64 goroutines on one device at a time, each with streams
// and its own buffers. Methods of a device may be called concurrently.
func testConcurrent(t *testing.T, open launches.Opener) {
	const goroutines, rounds, n = 64, 10, 5_000
	d := launches.Open(t, open)
	fill, add := launches.FindKernel(t, d, "fill_u32"), launches.FindKernel(t, d, "checksum")
	var wg sync.WaitGroup
	failed := make(chan error, goroutines)
	for id := range goroutines {
		wg.Go(func() {
			for round := range rounds {
				if err := copyAndLaunch(d, fill, add, id*rounds+round, n); err != nil {
					failed <- fmt.Errorf("goroutine %d round %d: %w", id, round, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(failed)
	for err := range failed {
		t.Error(err)
	}
}

// copyAndLaunch writes random words, overwrites half of them by a kernel, computes a checksum on
// the device and compares both, with its own handles. It closes them also after an error.
func copyAndLaunch(d device.Device, fill, sum device.Kernel, seed, n int) (err error) {
	data := launches.RandomBytes(uint64(seed), 4*n)
	words, err := d.Alloc(int64(len(data)), "concurrent")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, words.Close()) }()
	total, err := d.Alloc(8, "concurrent")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, total.Close()) }()
	s, err := d.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()

	half := n / 2
	err = errors.Join(words.Write(0, data), total.Fill(0, 8, 0),
		s.Launch(fill, device.Geometry{Grid: 4, Block: 128}, device.Ptr(words), device.Uint64(uint64(half)),
			device.Uint32(uint32(seed))),
		s.Launch(sum, device.Geometry{Grid: 5, Block: 96}, device.Ptr(words), device.Uint64(uint64(len(data))),
			device.Ptr(total)))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), launches.Patience)
	defer cancel()
	if err := s.Sync(ctx); err != nil {
		return err
	}
	for i := range half {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(seed))
	}
	got, sumBytes := make([]byte, len(data)), make([]byte, 8)
	if err := errors.Join(words.Read(0, got), total.Read(0, sumBytes)); err != nil {
		return err
	}
	if !bytes.Equal(got, data) {
		return errors.New("the words differ")
	}
	if have, need := binary.LittleEndian.Uint64(sumBytes), Checksum(data); have != need {
		return fmt.Errorf("checksum %x, want %x", have, need)
	}
	return nil
}
