package gpubatch

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestBuffer: a buffer is allocated once for batches of similar size, and again after Close.
func TestBuffer(t *testing.T) {
	d, err := cuda.Open(t.Context(), "host", cuda.Options{Poison: true})
	testkit.NoError(t, "cuda.Open", err)
	defer func() {
		if err := d.Close(); err != nil {
			t.Errorf("d.Close: %v, want no error", err)
		}
	}()
	var b Buffer
	testkit.NoError(t, "b.Grow", b.Grow(d, 1000, "test"))
	first := b.Memory
	if err := b.Grow(d, 1500, "test"); err != nil || b.Memory != first || first.Size() < 1500 {
		t.Errorf("%d bytes: %v", b.Memory.Size(), err)
	}
	if err := b.Grow(d, 10000, "test"); err != nil || b.Memory == first || b.Memory.Size() < 10000 {
		t.Errorf("%d bytes: %v", b.Memory.Size(), err)
	}
	if err := errors.Join(b.Close(), b.Close()); err != nil || b.Memory != nil {
		t.Errorf("close twice: %v, memory %v; want no error and none", err, b.Memory)
	}
}

// TestSplitter: a batch is halved until the device has memory for it, and the next ones grow again.
func TestSplitter(t *testing.T) {
	var s Splitter
	var calls [][2]int
	room, trims := 30, 0
	each := func(n int) (int, error) {
		calls = nil
		return s.Each(n, func(from, most int) (int, error) {
			calls = append(calls, [2]int{from, most})
			if most > room {
				return from, AllocError(device.ErrOutOfMemory)
			}
			return from + most, nil
		}, func() error { trims++; return nil })
	}
	for _, c := range []struct {
		n, halved int
		calls     [][2]int
	}{
		{100, 2, [][2]int{{0, 100}, {0, 50}, {0, 25}, {25, 25}, {50, 25}, {75, 25}}},
		{20, 0, [][2]int{{0, 20}}},
		{25, 0, [][2]int{{0, 25}}},
	} {
		halved, err := each(c.n)
		if err != nil || halved != c.halved || !slices.Equal(calls, c.calls) {
			t.Errorf("%d observations: halved %d times, %v, %v", c.n, halved, calls, err)
		}
	}
	if trims != 2 {
		t.Errorf("memory was released %d times", trims)
	}
	s.Reduced = true
	if _, err := each(9); err != nil || !slices.Equal(calls, [][2]int{{0, 3}, {3, 3}, {6, 3}}) {
		t.Errorf("reduced: %v, %v", calls, err)
	}
	room = 0
	if _, err := each(9); !errors.Is(err, ErrNoMemory) || !errors.Is(err, ErrDevice) ||
		!errors.Is(err, device.ErrOutOfMemory) {
		t.Errorf("no memory at all: %v", err)
	}
}

// TestSplitterFails: an error other than a lack of memory ends the batch, and so does an error of
// trim.
func TestSplitterFails(t *testing.T) {
	other, bad := errors.New("other"), errors.New("bad")
	var s Splitter
	if _, err := s.Each(8, func(int, int) (int, error) { return 0, other }, nil); !errors.Is(err, other) {
		t.Errorf("s.Each: %v, want %v", err, other)
	}
	noMemory := fmt.Errorf("x: %w", ErrNoMemory)
	_, err := s.Each(8, func(int, int) (int, error) { return 0, noMemory }, func() error { return bad })
	if !errors.Is(err, bad) || !errors.Is(err, noMemory) {
		t.Errorf("s.Each: %v, want %v and %v", err, bad, noMemory)
	}
}
