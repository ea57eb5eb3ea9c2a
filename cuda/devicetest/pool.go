package devicetest

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// Scale returns a number of rounds from the environment variable name, or n if it is not set: a GPU
// runs the suite longer than CI does. A value that is not a positive number fails the test.
func Scale(t testing.TB, name string, n int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return n
	}
	v, err := strconv.Atoi(text)
	if err != nil || v < 1 {
		t.Fatalf("%s=%q is not a number of rounds", name, text)
	}
	return v
}

// churnSize returns a size between 1 byte and 4 MiB; each magnitude is as likely as the others.
func churnSize(r *rand.Rand) int64 { return int64(math.Exp2(r.Float64() * 22)) }

// testChurn allocates and closes buffers of random sizes and purposes, EXOSWARM_ALLOCATIONS of
// them. It compares Usage with a model, and the contents of some buffers, because a mistake of the
// pool makes two buffers share memory. In the end all memory is back, after Trim also at the
// driver.
func testChurn(t *testing.T, open launches.Opener) {
	rounds := Scale(t, "EXOSWARM_ALLOCATIONS", 5000)
	d := launches.Open(t, open)
	purposes := []string{"pages", "staging", "votes"}
	r := rand.New(rand.NewPCG(7, 8))
	if err := launches.Alloc(t, d, 1).Close(); err != nil { // what the device needs once is there
		t.Fatal(err)
	}
	before, _, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	type held struct {
		b       device.Buffer
		purpose int
		stamp   []byte // at both ends; nil: not written
	}
	var live []held
	model := make([]device.Usage, len(purposes))
	closeOne := func(i int) {
		h := live[i]
		if h.stamp != nil {
			got := make([]byte, len(h.stamp))
			for _, off := range []int64{0, h.b.Size() - int64(len(got))} {
				if err := h.b.Read(off, got); err != nil || !bytes.Equal(got, h.stamp) {
					t.Fatalf("a buffer of %d bytes has other bytes at %d: %v", h.b.Size(), off, err)
				}
			}
		}
		if err := h.b.Close(); err != nil {
			t.Fatal(err)
		}
		model[h.purpose].Buffers--
		model[h.purpose].Bytes -= h.b.Size()
		live[i] = live[len(live)-1]
		live = live[:len(live)-1]
	}
	for round := range rounds {
		n, p := churnSize(r), r.IntN(len(purposes))
		b, err := d.Alloc(n, purposes[p])
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		h := held{b: b, purpose: p}
		if round%16 == 0 {
			h.stamp = launches.RandomBytes(uint64(round), int(min(n, 64)))
			launches.Write(t, b, n-int64(len(h.stamp)), h.stamp)
			launches.Write(t, b, 0, h.stamp)
			if n < 2*int64(len(h.stamp)) {
				h.stamp = nil // the ends overlap
			}
		}
		live = append(live, h)
		model[p].Buffers++
		model[p].Bytes += n
		for len(live) > 48 || len(live) > 0 && r.IntN(2) == 0 {
			closeOne(r.IntN(len(live)))
		}
		if round%500 == 0 {
			for _, u := range d.Usage() {
				for p, name := range purposes {
					if u.Purpose == name && (u.Buffers != model[p].Buffers || u.Bytes != model[p].Bytes) {
						t.Fatalf("round %d: usage %+v, want %+v", round, u, model[p])
					}
				}
			}
		}
	}
	for len(live) > 0 {
		closeOne(0)
	}
	if u := d.Usage(); len(u) != 0 {
		t.Errorf("usage after all was closed: %+v", u)
	}
	trimmed, err := d.Trim()
	if err != nil {
		t.Error(err)
	}
	if again, err := d.Trim(); err != nil || again != 0 {
		t.Errorf("a second trim gave %d bytes: %v", again, err)
	}
	after, _, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d allocations; trimmed %d bytes; free memory %+d bytes", rounds, trimmed, after-before)
	if d.Properties().UUID != "" && after < before-(64<<20) { // the free memory of a host is not the suite's alone
		t.Errorf("free memory was %d bytes and is %d", before, after)
	}
}

// testStreamMemory allocates and releases memory of one size on two streams, without a wait
// between, and checks what each use has seen. Memory that a stream has released may be reused at
// once on that stream, but on others, and by Alloc of the device, only when the stream has passed
// the release.
func testStreamMemory(t *testing.T, open launches.Opener) {
	const n, rounds = 300_000, 40
	d := launches.Open(t, open)
	streams := []device.Stream{launches.NewStream(t, d), launches.NewStream(t, d)}
	out := launches.AllocHost(t, d, 2*rounds*n)
	for round := range rounds {
		for i, s := range streams {
			b, err := s.Alloc(n, "scratch")
			if err != nil {
				t.Fatal(err)
			}
			v := byte(1 + 2*round + i)
			if err := errors.Join(s.Fill(b, 0, n, v), s.Download(out, int64(2*round+i)*n, b, 0, n),
				s.Release(b)); err != nil {
				t.Fatal(err)
			}
			if round%8 == 3 { // memory for anyone, while the streams are at work
				other, err := d.Alloc(n, "other")
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(other.Fill(0, n, 0xFF), other.Close()); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, s := range streams {
		launches.Wait(t, s)
	}
	for k := range 2 * rounds {
		part := out.Bytes()[k*n : (k+1)*n]
		if c := bytes.Count(part, []byte{byte(1 + k)}); c != n {
			t.Fatalf("use %d: %d bytes of %d are its own", k, c, n)
		}
	}
	if u := d.Usage(); len(u) != 1 || u[0].Buffers != 0 {
		t.Errorf("usage %+v", u)
	}
}

// testRelease: Release takes a buffer of its device once, and not in a capture. The buffer is
// closed for its owner at once, although the stream may still use it.
func testRelease(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	b, err := s.Alloc(100, "scratch")
	if err != nil {
		t.Fatal(err)
	}
	empty, err := s.Alloc(0, "scratch")
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Alloc(-1, "scratch")
	launches.Want(t, "alloc of -1", err, device.ErrInvalidArgument)
	launches.Want(t, "release nil", s.Release(nil), device.ErrInvalidArgument)
	launches.Want(t, "release another device's buffer",
		s.Release(launches.Alloc(t, launches.Open(t, open), 1)), device.ErrInvalidArgument)
	g, err := s.Capture(func() error { return s.Release(b) })
	launches.Want(t, "release in a capture", err, device.ErrInvalidArgument)
	if g != nil {
		t.Error("a capture with an error has a graph")
	}
	_, err = s.Capture(func() error { _, err := s.Alloc(1, "scratch"); return err })
	launches.Want(t, "alloc in a capture", err, device.ErrInvalidArgument)
	if err := errors.Join(s.Release(b), s.Release(empty)); err != nil {
		t.Fatal(err)
	}
	launches.Want(t, "release twice", s.Release(b), device.ErrClosed)
	launches.Want(t, "write", b.Write(0, []byte{1}), device.ErrClosed)
	launches.Want(t, "fill", s.Fill(b, 0, 1, 1), device.ErrClosed)
	if err := b.Close(); err != nil {
		t.Errorf("close after release: %v", err)
	}
	launches.Wait(t, s)
	if u := d.Usage(); len(u) != 0 {
		t.Errorf("usage %+v", u)
	}
	closed, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Error(err)
	}
	late := launches.Alloc(t, d, 1)
	launches.Want(t, "release on a closed stream", closed.Release(late), device.ErrClosed)
	_, err = closed.Alloc(1, "scratch")
	launches.Want(t, "alloc on a closed stream", err, device.ErrClosed)
}
