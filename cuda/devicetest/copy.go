package devicetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// testHostBuffer: memory of the host for copies begins at a page and has exactly its size. It is
// counted under its purpose until Close. After that it has no bytes, and copies with it are
// device.ErrClosed.
func testHostBuffer(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	for _, size := range bufferSizes {
		h, err := d.AllocHost(size, "staging")
		if err != nil {
			t.Fatal(err)
		}
		if mem := h.Bytes(); h.Size() != size || int64(len(mem)) != size || int64(cap(mem)) != size {
			t.Errorf("%d bytes: size %d, len %d, cap %d", size, h.Size(), len(mem), cap(mem))
		} else if p := uintptr(unsafe.Pointer(unsafe.SliceData(mem))); size > 0 && p%4096 != 0 {
			t.Errorf("%d bytes start at %x", size, p)
		}
		for i := range h.Bytes() { // all of it is there
			h.Bytes()[i] = byte(i)
		}
		u := d.Usage()
		if len(u) != 1 || u[0] != (device.Usage{Purpose: "staging", HostBuffers: 1, HostBytes: size}) {
			t.Errorf("usage %+v", u)
		}
		for i := range 2 {
			if err := h.Close(); err != nil {
				t.Errorf("close %d: %v", i, err)
			}
		}
		if h.Bytes() != nil || h.Size() != size {
			t.Errorf("after close: %d bytes, size %d", len(h.Bytes()), h.Size())
		}
	}
	_, err := d.AllocHost(-1, "devicetest")
	launches.Want(t, "alloc of -1", err, device.ErrInvalidArgument)
	_, err = d.AllocHost(1<<60, "devicetest")
	launches.Want(t, "alloc of 1 EiB", err, device.ErrOutOfMemory)
	if u := d.Usage(); len(u) != 0 {
		t.Errorf("usage after all was closed: %v", u)
	}
	b := launches.Alloc(t, d, 100)
	h, err := d.AllocHost(100, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	s := launches.NewStream(t, d)
	launches.Want(t, "upload from closed memory", s.Upload(b, 0, h, 0, 1), device.ErrClosed)
	launches.Want(t, "download to closed memory", s.Download(h, 0, b, 0, 1), device.ErrClosed)
}

// testStreamCopies compares device and host buffers with Go slices under the same random copies and
// fills on one stream. Work on a stream is done in its order, so the models need no wait between.
// Copies inside a buffer that overlap are refused.
func testStreamCopies(t *testing.T, open launches.Opener) {
	const size = 70_001
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	r := rand.New(rand.NewPCG(5, 6))
	host := launches.AllocHost(t, d, size)
	var buffers []device.Buffer
	var models [][]byte
	for i := range 3 {
		data := launches.RandomBytes(uint64(i), size)
		buffers = append(buffers, launches.Upload(t, d, data))
		models = append(models, data)
	}
	hostModel := bytes.Repeat([]byte{launches.Poison}, size)
	// span returns a random range of a buffer; half of the ranges are short.
	span := func() (off, n int) {
		off = r.IntN(size + 1)
		n = r.IntN(size - off + 1)
		if r.IntN(2) == 0 {
			n = min(n, r.IntN(64))
		}
		return off, n
	}
	for range 400 {
		i, j := r.IntN(len(buffers)), r.IntN(len(buffers))
		off, n := span()
		from := r.IntN(size - n + 1)
		var err error
		switch r.IntN(4) {
		case 0:
			err = s.Upload(buffers[i], int64(off), host, int64(from), int64(n))
			copy(models[i][off:off+n], hostModel[from:])
		case 1:
			err = s.Download(host, int64(off), buffers[i], int64(from), int64(n))
			copy(hostModel[off:off+n], models[i][from:])
		case 2:
			if i == j && n > 0 && off < from+n && from < off+n {
				launches.Want(t, "overlap", s.Copy(buffers[i], int64(off), buffers[j], int64(from), int64(n)),
					device.ErrInvalidArgument)
				continue
			}
			err = s.Copy(buffers[i], int64(off), buffers[j], int64(from), int64(n))
			copy(models[i][off:off+n], models[j][from:from+n])
		default:
			err = s.Fill(buffers[i], int64(off), int64(n), byte(from))
			copy(models[i][off:off+n], bytes.Repeat([]byte{byte(from)}, n))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	launches.Wait(t, s)
	for i, b := range buffers {
		if !bytes.Equal(launches.Download(t, b), models[i]) {
			t.Errorf("buffer %d differs from its model", i)
		}
	}
	if !bytes.Equal(host.Bytes(), hostModel) {
		t.Error("the host buffer differs from its model")
	}
}

// testCopyArguments: every copy and fill checks ranges, missing memory, memory of another device
// and closed memory before it does anything. A copy of no bytes at the end of a buffer is allowed.
func testCopyArguments(t *testing.T, open launches.Opener) {
	const size = 1000
	d, other := launches.Open(t, open), launches.Open(t, open)
	s := launches.NewStream(t, d)
	a := launches.Upload(t, d, launches.RandomBytes(1, size))
	b, h := launches.Alloc(t, d, size), launches.AllocHost(t, d, size)
	foreign := launches.Alloc(t, other, size)
	closed, err := d.Alloc(size, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dst, src, n int64 }{
		{0, 0, size + 1},
		{1, 0, size},
		{0, 1, size},
		{-1, 0, 1},
		{0, -1, 1},
		{0, 0, -1},
		{size + 1, 0, 0},
		{0, size + 1, 0},
		{math.MaxInt64, 0, 1},
		{0, math.MaxInt64, 1},
		{1, 1, math.MaxInt64},
		{math.MinInt64, 0, 1},
		{0, 0, math.MinInt64},
	} {
		launches.Want(t, "upload", s.Upload(b, c.dst, h, c.src, c.n), device.ErrInvalidArgument)
		launches.Want(t, "download", s.Download(h, c.dst, b, c.src, c.n), device.ErrInvalidArgument)
		launches.Want(t, "copy", s.Copy(b, c.dst, a, c.src, c.n), device.ErrInvalidArgument)
		launches.Want(t, "buffer copy", b.Copy(c.dst, a, c.src, c.n), device.ErrInvalidArgument)
		if c.src == 0 {
			launches.Want(t, "fill", s.Fill(b, c.dst, c.n, 1), device.ErrInvalidArgument)
		}
	}
	launches.Want(t, "copy of nil", s.Copy(b, 0, nil, 0, 0), device.ErrInvalidArgument)
	launches.Want(t, "copy to nil", s.Copy(nil, 0, b, 0, 0), device.ErrInvalidArgument)
	launches.Want(t, "upload from nil", s.Upload(b, 0, nil, 0, 0), device.ErrInvalidArgument)
	launches.Want(t, "download to nil", s.Download(nil, 0, b, 0, 0), device.ErrInvalidArgument)
	launches.Want(t, "fill of nil", s.Fill(nil, 0, 0, 0), device.ErrInvalidArgument)
	launches.Want(t, "buffer copy of nil", b.Copy(0, nil, 0, 0), device.ErrInvalidArgument)
	launches.Want(t, "upload to another device", s.Upload(foreign, 0, h, 0, 1), device.ErrInvalidArgument)
	launches.Want(t, "download from another device", s.Download(h, 0, foreign, 0, 1), device.ErrInvalidArgument)
	launches.Want(t, "fill of another device", s.Fill(foreign, 0, 1, 1), device.ErrInvalidArgument)
	launches.Want(t, "copy inside another device", s.Copy(foreign, 0, foreign, 500, 1), device.ErrInvalidArgument)
	launches.Want(t, "copy of closed memory", s.Copy(b, 0, closed, 0, 1), device.ErrClosed)
	launches.Want(t, "copy to closed memory", s.Copy(closed, 0, b, 0, 1), device.ErrClosed)
	launches.Want(t, "buffer copy of closed memory", b.Copy(0, closed, 0, 1), device.ErrClosed)
	launches.Want(t, "buffer copy to closed memory", closed.Copy(0, b, 0, 1), device.ErrClosed)
	launches.Want(t, "overlap", b.Copy(10, b, 0, 11), device.ErrInvalidArgument)
	if err := errors.Join(b.Copy(size, a, size, 0), s.Copy(b, size, a, size, 0), s.Upload(b, size, h, size, 0),
		s.Fill(b, size, 0, 1)); err != nil {
		t.Errorf("nothing at the end: %v", err)
	}
	launches.Wait(t, s)
	if n := launches.CountOther(launches.Download(t, b)); n != 0 {
		t.Errorf("refused calls changed %d bytes", n)
	}
	if n := launches.CountOther(h.Bytes()); n != 0 {
		t.Errorf("refused calls changed %d bytes of host memory", n)
	}
}

// testPeerCopies copies between two devices, on the streams of either, and inside one device.
// Nothing around the target changes. It passes with and without a direct connection of the devices.
func testPeerCopies(t *testing.T, open launches.Opener) {
	const size = 300_007
	one, two := launches.Open(t, open), launches.Open(t, open)
	data := launches.RandomBytes(9, size)
	a, b := launches.Upload(t, one, data), launches.Alloc(t, two, size)
	// expect checks the target and poisons it for the next copy.
	expect := func(what string, m device.Buffer, off int, data []byte) {
		t.Helper()
		got := launches.Download(t, m)
		if n := launches.CountOther(got[:off]) + launches.CountOther(got[off+len(data):]); n != 0 {
			t.Errorf("%s: %d bytes around it were overwritten", what, n)
		}
		if !bytes.Equal(got[off:off+len(data)], data) {
			t.Errorf("%s: other bytes have arrived", what)
		}
		if err := m.Fill(0, m.Size(), launches.Poison); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Copy(100, a, 7, 200_000); err != nil {
		t.Fatal(err)
	}
	expect("buffer to buffer", b, 100, data[7:200_007])
	for i, d := range []device.Device{one, two} {
		s := launches.NewStream(t, d)
		if err := s.Copy(b, 1, a, 3, size-3); err != nil {
			t.Fatal(err)
		}
		launches.Wait(t, s)
		expect([]string{"on the source's stream", "on the destination's stream"}[i], b, 1, data[3:])
	}
	c := launches.Alloc(t, one, size)
	if err := c.Copy(5, a, 0, size-5); err != nil {
		t.Fatal(err)
	}
	expect("on one device", c, 5, data[:size-5])
	if err := errors.Join(c.Fill(0, size, launches.Poison), c.Write(0, data[:1000]), c.Copy(2000, c, 0, 1000),
		c.Fill(0, 1000, launches.Poison)); err != nil {
		t.Fatal(err)
	}
	expect("in one buffer", c, 2000, data[:1000])
}

// testLeakedHandles: Close of a device with open handles is device.ErrLeak, whose text counts the
// handles of each kind and names the purposes of memory. The handles are unusable then, and closing
// them is not an error.
func testLeakedHandles(t *testing.T, open launches.Opener) {
	d := open(t, 0)
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	e, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	h, err := d.AllocHost(321, "lost staging")
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(64, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.Capture(func() error { return s.Fill(b, 0, 64, 1) })
	if err != nil {
		t.Fatal(err)
	}
	err = d.Close()
	launches.Want(t, "close with open handles", err, device.ErrLeak)
	for _, word := range []string{"1 streams", "1 events", "1 graphs", "lost staging", "321"} {
		if err != nil && !strings.Contains(err.Error(), word) {
			t.Errorf("the report does not name %q: %v", word, err)
		}
	}
	if h.Bytes() != nil {
		t.Error("host memory outlives its device")
	}
	if err := errors.Join(g.Close(), e.Close(), h.Close(), b.Close(), s.Close(), d.Close()); err != nil {
		t.Errorf("close after the device: %v", err)
	}
}

// testCopySizes: copies of every power of two, from 1 byte to 1 GiB in a long run, arrive whole: to
// the device, on it, and back.
func testCopySizes(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	s := launches.NewStream(t, d)
	for k := range testkit.Of(31, 21) {
		size := int64(1) << k
		from, to := launches.AllocHost(t, d, size), launches.AllocHost(t, d, size)
		a, b := launches.Alloc(t, d, size), launches.Alloc(t, d, size)
		FillWords(from.Bytes(), uint64(k))
		err := errors.Join(s.Upload(a, 0, from, 0, size), s.Copy(b, 0, a, 0, size), s.Download(to, 0, b, 0, size))
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		launches.Wait(t, s)
		if !bytes.Equal(from.Bytes(), to.Bytes()) {
			t.Errorf("%d bytes came back changed", size)
		}
		if err := errors.Join(a.Close(), b.Close(), from.Close(), to.Close()); err != nil {
			t.Error(err)
		}
	}
}

// FillWords fills p with words that differ from each other, and from the words of another seed.
func FillWords(p []byte, seed uint64) {
	word := seed * 0x9e3779b97f4a7c15
	for ; len(p) >= 8; p = p[8:] {
		word += 0x9e3779b97f4a7c15
		binary.LittleEndian.PutUint64(p, word^word>>29)
	}
	for i := range p {
		p[i] = byte(word>>(8*i)) + 1
	}
}
