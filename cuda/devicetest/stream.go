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
	"github.com/exoswarm/exoswarm/cuda/devicetest/fixture"
)

// testOrder runs a long chain of launches on one stream, each of which needs the result of the one
// before: a value doubles in a ring of two buffers.
func testOrder(t *testing.T, open fixture.Opener) {
	const n, rounds = 10_000, 24 * 200
	d := fixture.Open(t, open)
	s := fixture.NewStream(t, d)
	fill, add := fixture.FindKernel(t, d, "fill_u32"), fixture.FindKernel(t, d, "vector_add_f32")
	a, b := fixture.Alloc(t, d, 4*n), fixture.Alloc(t, d, 4*n)
	g := device.Geometry{Grid: 3, Block: 128}
	for i := range rounds {
		if i%24 == 0 { // 1.0, doubled 23 times, stays exact
			fixture.Launch(t, s, fill, g, device.Ptr(a), device.Uint64(n), device.Uint32(0x3F800000))
			continue
		}
		fixture.Launch(t, s, add, g, device.Ptr(a), device.Ptr(a), device.Ptr(b), device.Uint64(n))
		a, b = b, a
	}
	fixture.Wait(t, s)
	for i, v := range device.Of[float32](fixture.Download(t, a)) {
		if v != 1<<23 {
			t.Fatalf("element %d is %v after the chain, want %v", i, v, 1<<23)
		}
	}
	fixture.Wait(t, s) // an empty stream is done
}

// testSyncContext: the end of a context ends a wait and not the work.
func testSyncContext(t *testing.T, open fixture.Opener) {
	d := fixture.Open(t, open)
	s := fixture.NewStream(t, d)
	b := fixture.Alloc(t, d, 4<<20)
	fill := fixture.FindKernel(t, d, "fill_u32")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for i := range 50 {
		fixture.Launch(t, s, fill, device.Geometry{Grid: 4, Block: 64}, device.Ptr(b), device.Uint64(1<<20),
			device.Uint32(uint32(i)))
	}
	if err := s.Sync(ctx); err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
	fixture.Wait(t, s) // the work was not cancelled
	for i, v := range device.Of[uint32](fixture.Download(t, b)) {
		if v != 49 {
			t.Fatalf("word %d is %d", i, v)
		}
	}
}

// testClosedStream: Close waits for the work of the stream. Later calls are device.ErrClosed.
func testClosedStream(t *testing.T, open fixture.Opener) {
	d := fixture.Open(t, open)
	b := fixture.Alloc(t, d, 4<<20)
	fill := fixture.FindKernel(t, d, "fill_u32")
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	args := []device.Arg{device.Ptr(b), device.Uint64(1 << 20), device.Uint32(7)}
	g := device.Geometry{Grid: 2, Block: 32}
	for range 20 {
		fixture.Launch(t, s, fill, g, args...)
	}
	for i := range 2 { // Close waits for the work
		if err := s.Close(); err != nil {
			t.Errorf("close %d: %v", i, err)
		}
	}
	for i, v := range device.Of[uint32](fixture.Download(t, b)) {
		if v != 7 {
			t.Fatalf("word %d is %d: Close did not wait", i, v)
		}
	}
	fixture.Want(t, "launch", s.Launch(fill, g, args...), device.ErrClosed)
	fixture.Want(t, "sync", s.Sync(context.Background()), device.ErrClosed)
}

// testConcurrent copies and launches in 64 goroutines on one device at a time, each with streams
// and buffers of its own. Methods of a device may be called concurrently.
func testConcurrent(t *testing.T, open fixture.Opener) {
	const goroutines, rounds, n = 64, 10, 5_000
	d := fixture.Open(t, open)
	fill, add := fixture.FindKernel(t, d, "fill_u32"), fixture.FindKernel(t, d, "checksum")
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
// the device and compares both, with handles of its own. It closes them also after an error.
func copyAndLaunch(d device.Device, fill, sum device.Kernel, seed, n int) (err error) {
	data := fixture.RandomBytes(uint64(seed), 4*n)
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
	ctx, cancel := context.WithTimeout(context.Background(), fixture.Patience)
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
