// Package tierstest tests tiers: Frames and Copier hold implementations of tiers.Frames and
// tiers.Copier to their contracts, Backend is a double of BadgerDB, Mem a file system in memory
// that can lose power, Inject one with faults, and HostFrames a medium of plain memory.
package tierstest

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/tiers"
)

// Sizes of the tests: few frames, and pages that are not all in one slab.
const (
	Count    = 13
	PageSize = 16 << 10
)

// Frames tests a medium of Count frames of PageSize bytes.
func Frames(t *testing.T, f tiers.Frames) {
	t.Run("count", func(t *testing.T) {
		if f.Count() != Count {
			t.Errorf("%d frames, want %d", f.Count(), Count)
		}
	})
	t.Run("bounds", func(t *testing.T) { bounds(t, f) })
	t.Run("content", func(t *testing.T) { content(t, f) })
	t.Run("parallel", func(t *testing.T) { parallel(t, f) })
	if m, ok := f.(tiers.Mapped); ok {
		t.Run("mapped", func(t *testing.T) { mapped(t, m) })
	}
	if z, ok := f.(tiers.Zeroer); ok {
		t.Run("zeroed", func(t *testing.T) { zeroed(t, z) })
	}
	if s, ok := f.(tiers.Stager); ok {
		t.Run("staged", func(t *testing.T) { staged(t, s) })
	}
	if r, ok := f.(tiers.Resizer); ok {
		t.Run("resized", func(t *testing.T) { resized(t, r) })
	}
}

// resized makes the frames fewer, none, more, and as many as before, and looks where their contents
// are. A move that does not fit changes nothing.
func resized(t *testing.T, f tiers.Resizer) {
	content := func(n int) []byte { return bytes.Repeat([]byte{byte(n + 1)}, PageSize) }
	for frame := range Count {
		if err := f.Write(frame, 0, content(frame)); err != nil {
			t.Fatal(err)
		}
	}
	holds := make([]int, Count) // by frame: the frame that it was at first
	for i := range holds {
		holds[i] = i
	}
	check := func() {
		t.Helper()
		b := make([]byte, PageSize)
		for frame, of := range holds {
			if of < 0 {
				continue
			}
			if err := f.Read(frame, 0, b); err != nil || !bytes.Equal(b, content(of)) {
				t.Fatalf("frame %d of %d has %d, want %d: %v", frame, f.Count(), b[0], of+1, err)
			}
		}
	}
	for _, bad := range []tiers.Move{{From: Count}, {To: 4}, {From: -1}, {To: -1}} {
		if err := f.Resize(4, []tiers.Move{{}, bad}); !errors.Is(err, tiers.ErrInvalid) || f.Count() != Count {
			t.Errorf("resize with %v: %v, %d frames", bad, err, f.Count())
		}
	}
	check()
	for _, c := range []struct {
		count int
		from  []int // by new frame: the old one
	}{
		{count: 7, from: []int{1, 2, 3, 5, 8, 9, 12}},
		{count: 20, from: []int{0, 1, 2, 3, 4, 5, 6}},
		{count: 3, from: []int{6, 0}},
		{count: 0},
		{count: Count},
	} {
		var moves []tiers.Move
		next := make([]int, c.count)
		for i := range next {
			next[i] = -1
		}
		for to, from := range c.from {
			moves = append(moves, tiers.Move{From: from, To: to})
			next[to] = holds[from]
		}
		if err := f.Resize(c.count, moves); err != nil || f.Count() != c.count {
			t.Fatalf("resize to %d: %v, %d frames", c.count, err, f.Count())
		}
		holds = next
		check()
	}
}

// bounds tries every range that leaves its frame, which must change nothing.
func bounds(t *testing.T, f tiers.Frames) {
	for frame := range Count {
		if err := f.Write(frame, 0, bytes.Repeat([]byte{byte(frame)}, PageSize)); err != nil {
			t.Fatal(err)
		}
	}
	b := bytes.Repeat([]byte{0xee}, 64)
	for _, c := range []struct {
		frame int
		off   int64
	}{
		{-1, 0},
		{Count, 0},
		{math.MaxInt, 0},
		{math.MinInt, 0},
		{0, -1},
		{0, PageSize - 63},
		{0, PageSize},
		{0, PageSize + 1},
		{0, math.MaxInt64},
		{0, math.MinInt64},
	} {
		if err := f.Write(c.frame, c.off, b); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("write 64 bytes at %d of frame %d: %v, want ErrInvalid", c.off, c.frame, err)
		}
		if err := f.Read(c.frame, c.off, b); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("read 64 bytes at %d of frame %d: %v, want ErrInvalid", c.off, c.frame, err)
		}
	}
	for _, off := range []int64{0, 5, PageSize} {
		if err := errors.Join(f.Write(1, off, nil), f.Read(1, off, nil)); err != nil {
			t.Errorf("nothing at %d: %v", off, err)
		}
	}
	got := make([]byte, PageSize)
	for frame := range Count {
		if err := f.Read(frame, 0, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, bytes.Repeat([]byte{byte(frame)}, PageSize)) {
			t.Errorf("frame %d was changed by a call that was refused", frame)
		}
	}
}

// zeroed clears one frame between two others, and none that there is not.
func zeroed(t *testing.T, z tiers.Zeroer) {
	full := bytes.Repeat([]byte{0xa5}, PageSize)
	for frame := range Count {
		if err := z.Write(frame, 0, full); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Zero(6); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, PageSize)
	for frame, want := range map[int][]byte{5: full, 6: make([]byte, PageSize), 7: full} {
		if err := z.Read(frame, 0, got); err != nil || !bytes.Equal(got, want) {
			t.Errorf("frame %d after frame 6 was cleared: it has %d, %v", frame, got[0], err)
		}
	}
	for _, frame := range []int{-1, Count} {
		if err := z.Zero(frame); !errors.Is(err, tiers.ErrInvalid) {
			t.Errorf("clear frame %d of %d: %v, want ErrInvalid", frame, Count, err)
		}
	}
}

// content writes and reads random ranges and compares with plain memory.
func content(t *testing.T, f tiers.Frames) {
	rng := rand.New(rand.NewPCG(1, 1))
	var want [Count][PageSize]byte
	for frame := range Count {
		if err := f.Write(frame, 0, want[frame][:]); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, PageSize)
	for range 400 {
		frame := rng.IntN(Count)
		off := rng.IntN(PageSize)
		n := rng.IntN(PageSize - off + 1)
		if rng.IntN(2) == 0 {
			fill(rng, got[:n])
			copy(want[frame][off:], got[:n])
			if err := f.Write(frame, int64(off), got[:n]); err != nil {
				t.Fatal(err)
			}
			fill(rng, got[:n]) // It is the caller's again.
		}
		if err := f.Read(frame, int64(off), got[:n]); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got[:n], want[frame][off:off+n]) {
			t.Fatalf("frame %d has other bytes at %d..%d", frame, off, off+n)
		}
	}
	for frame := range Count {
		if err := f.Read(frame, 0, got); err != nil || !bytes.Equal(got, want[frame][:]) {
			t.Errorf("frame %d has other bytes: %v", frame, err)
		}
	}
}

func parallel(t *testing.T, f tiers.Frames) {
	var wg sync.WaitGroup
	for frame := range Count {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(frame), 2))
			want, got := make([]byte, PageSize), make([]byte, PageSize)
			for range 20 {
				fill(rng, want)
				err := errors.Join(f.Write(frame, 0, want), f.Read(frame, 0, got))
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("frame %d has other bytes: %v", frame, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// mapped compares the memory of frames with what Read and Write see.
func mapped(t *testing.T, m tiers.Mapped) {
	rng := rand.New(rand.NewPCG(3, 3))
	got := make([]byte, PageSize)
	for frame := range Count {
		b := m.Frame(frame)
		if len(b) != PageSize || cap(b) != PageSize {
			t.Fatalf("frame %d has %d bytes and room for %d", frame, len(b), cap(b))
		}
		fill(rng, b)
		if err := m.Read(frame, 0, got); err != nil || !bytes.Equal(got, b) {
			t.Errorf("frame %d reads other bytes than its memory has: %v", frame, err)
		}
		fill(rng, got)
		if err := m.Write(frame, 0, got); err != nil || !bytes.Equal(got, b) {
			t.Errorf("frame %d has other bytes in memory than were written: %v", frame, err)
		}
	}
}

// staged reads and writes with the medium's own buffers, in whole and in part.
func staged(t *testing.T, s tiers.Stager) {
	rng := rand.New(rand.NewPCG(4, 4))
	var bufs [2][]byte
	for i := range bufs {
		var err error
		if bufs[i], err = s.Stage(); err != nil || len(bufs[i]) != PageSize {
			t.Fatalf("buffer of %d bytes: %v", len(bufs[i]), err)
		}
	}
	for frame := range Count {
		fill(rng, bufs[0])
		n := rng.IntN(PageSize)
		if err := errors.Join(s.Write(frame, 0, bufs[0]), s.Read(frame, 0, bufs[1])); err != nil ||
			!bytes.Equal(bufs[0], bufs[1]) {
			t.Errorf("frame %d has other bytes: %v", frame, err)
		}
		if err := s.Read(frame, int64(n), bufs[1][:PageSize-n]); err != nil ||
			!bytes.Equal(bufs[0][n:], bufs[1][:PageSize-n]) {
			t.Errorf("frame %d has other bytes from %d on: %v", frame, n, err)
		}
	}
}

// Copier tests the copies between a Copier and another medium that it reaches, both of Count frames
// of PageSize bytes.
func Copier(t *testing.T, c tiers.Copier, other tiers.Frames) {
	ctx := t.Context()
	if !c.Reaches(other) {
		t.Fatalf("%T does not reach %T", c, other)
	}
	if c.Reaches(nothing{}) {
		t.Errorf("%T says that it reaches anything", c)
	}
	if err := c.CopyIn(ctx, nothing{}, []tiers.Move{{}}, tiers.Demand); !errors.Is(err, tiers.ErrInvalid) {
		t.Errorf("copy from a medium that it does not reach: %v, want ErrInvalid", err)
	}
	t.Run("random moves", func(t *testing.T) { randomMoves(t, c, other) })
	t.Run("refused moves", func(t *testing.T) { refusedMoves(t, c, other) })
	t.Run("side by side", func(t *testing.T) { sideBySide(t, c, other) })
}

// randomMoves copies random pages in both directions and compares every frame of both media with
// plain memory.
func randomMoves(t *testing.T, c tiers.Copier, other tiers.Frames) {
	rng := rand.New(rand.NewPCG(5, 5))
	var want [2][Count][]byte
	media := [2]tiers.Frames{c, other}
	refill := func() {
		for i, f := range media {
			for frame := range Count {
				want[i][frame] = make([]byte, PageSize)
				fill(rng, want[i][frame])
				if err := f.Write(frame, 0, want[i][frame]); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	got := make([]byte, PageSize)
	for round := range 60 {
		if round%10 == 0 {
			refill()
		}
		n := rng.IntN(Count + 1)
		from, to := rng.Perm(Count)[:n], rng.Perm(Count)[:n]
		var moves []tiers.Move
		u := tiers.Urgency(rng.IntN(2))
		in := rng.IntN(2) == 0
		for i := range n {
			moves = append(moves, tiers.Move{From: from[i], To: to[i]})
			if in {
				want[0][to[i]] = want[1][from[i]]
			} else {
				want[1][to[i]] = want[0][from[i]]
			}
		}
		var err error
		if in {
			err = c.CopyIn(t.Context(), other, moves, u)
		} else {
			err = c.CopyOut(t.Context(), other, moves, u)
		}
		if err != nil {
			t.Fatal(err)
		}
		clear(moves) // They are the caller's again.
		for i, f := range media {
			for frame := range Count {
				if err := f.Read(frame, 0, got); err != nil || !bytes.Equal(got, want[i][frame]) {
					t.Fatalf("round %d, %d moves in %v: frame %d of %T has other bytes: %v", round, n, in, frame, f,
						err)
				}
			}
		}
	}
}

// refusedMoves tries moves that make no sense, and a context that is over: nothing changes.
func refusedMoves(t *testing.T, c tiers.Copier, other tiers.Frames) {
	page := bytes.Repeat([]byte{7}, PageSize)
	for frame := range Count {
		if err := errors.Join(c.Write(frame, 0, page), other.Write(frame, 0, page)); err != nil {
			t.Fatal(err)
		}
	}
	good := tiers.Move{From: 1, To: 2}
	for _, bad := range []tiers.Move{
		{From: -1},
		{To: -1},
		{From: Count},
		{To: Count},
		{From: math.MinInt, To: 1},
		{From: 1, To: math.MaxInt},
	} {
		for u := range tiers.Urgency(2) {
			if err := c.CopyIn(t.Context(), other, []tiers.Move{good, bad}, u); !errors.Is(err, tiers.ErrInvalid) {
				t.Errorf("copy in %v: %v, want ErrInvalid", bad, err)
			}
			if err := c.CopyOut(t.Context(), other, []tiers.Move{good, bad}, u); !errors.Is(err, tiers.ErrInvalid) {
				t.Errorf("copy out %v: %v, want ErrInvalid", bad, err)
			}
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Write(3, 0, make([]byte, PageSize)); err != nil {
		t.Fatal(err)
	}
	for u := range tiers.Urgency(2) {
		if err := c.CopyOut(over, other, []tiers.Move{{From: 3, To: 4}}, u); !errors.Is(err, context.Canceled) {
			t.Errorf("copy with a context that is over: %v", err)
		}
	}
	got := make([]byte, PageSize)
	if err := other.Read(4, 0, got); err != nil || !bytes.Equal(got, page) {
		t.Errorf("a refused copy changed its destination: %v", err)
	}
}

// sideBySide copies in and out, in the background and on demand, at once, each goroutine over
// frames of its own.
func sideBySide(t *testing.T, c tiers.Copier, other tiers.Frames) {
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 6))
			frames := []int{g * 3, g*3 + 1, g*3 + 2}
			page, got := make([]byte, PageSize), make([]byte, PageSize)
			u := tiers.Urgency(g % 2)
			for range 30 {
				var moves []tiers.Move
				fill(rng, page)
				for _, f := range frames {
					page[0] = byte(f)
					if err := other.Write(f, 0, page); err != nil {
						t.Error(err)
						return
					}
					moves = append(moves, tiers.Move{From: f, To: f})
				}
				zero := make([]byte, PageSize)
				err := c.CopyIn(t.Context(), other, moves, u)
				for _, f := range frames {
					err = errors.Join(err, other.Write(f, 0, zero))
				}
				err = errors.Join(err, c.CopyOut(t.Context(), other, moves, u))
				for _, f := range frames {
					err = errors.Join(err, other.Read(f, 0, got))
					page[0] = byte(f)
					if err != nil || !bytes.Equal(got, page) {
						t.Errorf("frame %d has other bytes: %v", f, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

func fill(rng *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
}

type nothing struct{}

func (nothing) Count() int                     { return 0 }
func (nothing) Read(int, int64, []byte) error  { return tiers.ErrInvalid }
func (nothing) Write(int, int64, []byte) error { return tiers.ErrInvalid }
