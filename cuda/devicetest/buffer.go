package devicetest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// bufferSizes are sizes in bytes around words, warps, the alignment, and the blocks in which
// drivers hand out memory.
var bufferSizes = []int64{0, 1, 3, 4, 7, 255, 256, 257, 4096, 65_537, 2<<20 - 1, 2 << 20, 5<<20 + 3}

// testRanges: a buffer of any size holds what was written. An access of no bytes is allowed
// anywhere inside, its end included. An access that begins or ends outside is
// device.ErrInvalidArgument, also where an offset plus a length overflows, and changes nothing.
func testRanges(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	for _, size := range bufferSizes {
		b := launches.Alloc(t, d, size)
		if b.Size() != size {
			t.Fatalf("size %d of a buffer of %d bytes", b.Size(), size)
		}
		data := launches.RandomBytes(uint64(size), int(size))
		launches.Write(t, b, 0, data)
		if got := launches.Download(t, b); !bytes.Equal(got, data) {
			t.Fatalf("a buffer of %d bytes does not hold what was written", size)
		}
		for _, off := range []int64{0, size / 2, size} { // nothing is always allowed inside
			if err := b.Write(off, nil); err != nil {
				t.Errorf("write nil at %d of %d: %v", off, size, err)
			}
			if err := b.Read(off, []byte{}); err != nil {
				t.Errorf("read nothing at %d of %d: %v", off, size, err)
			}
			if err := b.Fill(off, 0, 1); err != nil {
				t.Errorf("fill nothing at %d of %d: %v", off, size, err)
			}
		}
		one := []byte{0}
		for _, off := range []int64{-1, size, size + 1, math.MaxInt64, math.MinInt64, -size - 1} {
			launches.Want(t, "write outside", b.Write(off, one), device.ErrInvalidArgument)
			launches.Want(t, "read outside", b.Read(off, one), device.ErrInvalidArgument)
			launches.Want(t, "fill outside", b.Fill(off, 1, 0), device.ErrInvalidArgument)
		}
		launches.Want(t, "write too much", b.Write(0, make([]byte, size+1)), device.ErrInvalidArgument)
		launches.Want(t, "write nothing past the end", b.Write(size+1, nil), device.ErrInvalidArgument)
		for _, r := range [][2]int64{
			{0, -1},
			{1, -1},
			{0, size + 1},
			{1, size},
			{1, math.MaxInt64},
			{size, math.MaxInt64},
			{math.MaxInt64, math.MaxInt64},
			{0, math.MinInt64},
		} {
			launches.Want(t, "fill out of range", b.Fill(r[0], r[1], 0), device.ErrInvalidArgument)
		}
		if got := launches.Download(t, b); !bytes.Equal(got, data) {
			t.Fatalf("a refused call changed a buffer of %d bytes", size)
		}
	}
	_, err := d.Alloc(-1, "devicetest")
	launches.Want(t, "alloc of -1", err, device.ErrInvalidArgument)
}

// testRandomAccess compares a buffer with a Go slice under the same random writes, fills and reads.
// Calls of a buffer are complete when they return, so each read sees all earlier writes.
func testRandomAccess(t *testing.T, open launches.Opener) {
	const size = 100_003
	d := launches.Open(t, open)
	b := launches.Alloc(t, d, size)
	model := bytes.Repeat([]byte{launches.Poison}, size)
	r := rand.New(rand.NewPCG(1, 2))
	for step := range 300 {
		off := r.IntN(size + 1)
		n := r.IntN(size - off + 1)
		if r.IntN(2) == 0 {
			n = min(n, r.IntN(64))
		}
		switch r.IntN(3) {
		case 0:
			data := launches.RandomBytes(uint64(step), n)
			launches.Write(t, b, int64(off), data)
			copy(model[off:], data)
		case 1:
			v := byte(step)
			if err := b.Fill(int64(off), int64(n), v); err != nil {
				t.Fatal(err)
			}
			copy(model[off:off+n], bytes.Repeat([]byte{v}, n))
		default:
			got := make([]byte, n)
			if err := b.Read(int64(off), got); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, model[off:off+n]) {
				t.Fatalf("step %d: %d bytes at %d differ", step, n, off)
			}
		}
	}
	if !bytes.Equal(launches.Download(t, b), model) {
		t.Fatal("the buffer differs from its model")
	}
}

// testNeighbours: an access to one of many small buffers touches no other, although they may share
// a block of the driver.
func testNeighbours(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	buffers := make([]device.Buffer, 64)
	for i := range buffers {
		buffers[i] = launches.Upload(t, d, bytes.Repeat([]byte{byte(i)}, 1+i*37))
	}
	for i := 1; i < len(buffers); i += 2 {
		if err := buffers[i].Fill(0, buffers[i].Size(), 0xFF); err != nil {
			t.Fatal(err)
		}
	}
	for i := 0; i < len(buffers); i += 2 {
		if got := launches.Download(t, buffers[i]); !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, 1+i*37)) {
			t.Errorf("buffer %d changed with its neighbour", i)
		}
	}
}

// testClosedBuffer: Close may be called twice. A closed buffer keeps its size, and every use of it
// is device.ErrClosed, as an argument of a kernel too.
func testClosedBuffer(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	b, err := d.Alloc(100, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if err := b.Close(); err != nil {
			t.Errorf("close %d: %v", i, err)
		}
	}
	one := []byte{1}
	launches.Want(t, "write", b.Write(0, one), device.ErrClosed)
	launches.Want(t, "read", b.Read(0, one), device.ErrClosed)
	launches.Want(t, "fill", b.Fill(0, 1, 1), device.ErrClosed)
	if b.Size() != 100 {
		t.Errorf("size %d after close", b.Size())
	}
	s := launches.NewStream(t, d)
	err = s.Launch(launches.FindKernel(t, d, "fill_u32"), device.Geometry{Grid: 1, Block: 32}, device.Ptr(b),
		device.Uint64(1), device.Uint32(1))
	launches.Want(t, "launch", err, device.ErrClosed)
}
