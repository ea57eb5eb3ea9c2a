package devicetest

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// testLimit: a device with a limit of memory gives exactly that much, and memory that was closed
// can be had again in any other size. More than the limit is device.ErrOutOfMemory, for sizes that
// no machine has too.
func testLimit(t *testing.T, open launches.Opener) {
	const limit = 8 << 20
	d := open(t, limit)
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	for _, n := range []int64{limit + 1, 1 << 50, math.MaxInt64} {
		b, err := d.Alloc(n, "devicetest")
		launches.Want(t, "alloc over the limit", err, device.ErrOutOfMemory)
		if b != nil { // callers test for nil before they close
			t.Errorf("alloc of %d bytes over the limit: a buffer of type %T, want nil", n, b)
		}
	}
	for round := range 3 { // what is freed can be had again
		var buffers []device.Buffer
		for {
			b, err := d.Alloc(1<<20, "devicetest")
			if err != nil {
				launches.Want(t, "alloc past the limit", err, device.ErrOutOfMemory)
				break
			}
			buffers = append(buffers, b)
			if len(buffers) > limit>>20 {
				break
			}
		}
		if len(buffers) != limit>>20 {
			t.Errorf("round %d: %d buffers of 1 MiB fit into 8 MiB", round, len(buffers))
		}
		for _, b := range buffers {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
	}
	// What is kept of other sizes is in nobody's way, up to the last byte.
	for _, n := range []int64{limit, 1, limit - 1, 5 << 20, limit/2 + 1, limit - 4097, limit} {
		b, err := d.Alloc(n, "devicetest")
		if err != nil {
			t.Errorf("%d bytes of %d after others were closed: %v", n, limit, err)
			continue
		}
		if free, _, err := d.Memory(); err != nil || free > limit-n {
			t.Errorf("%d bytes free beside %d of %d: %v", free, n, limit, err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}

// testUsage: Usage counts open buffers and their bytes by purpose, sorted by purpose, and nothing
// else.
func testUsage(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
	if u := d.Usage(); len(u) != 0 {
		t.Fatalf("usage of a fresh device: %v", u)
	}
	var pages []device.Buffer
	for range 3 {
		b, err := d.Alloc(1000, "pages")
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, b)
	}
	staging, err := d.Alloc(5, "alpha")
	if err != nil {
		t.Fatal(err)
	}
	u := d.Usage()
	if len(u) != 2 || u[0] != (device.Usage{Purpose: "alpha", Buffers: 1, Bytes: 5}) ||
		u[1] != (device.Usage{Purpose: "pages", Buffers: 3, Bytes: 3000}) {
		t.Errorf("usage %v", u)
	}
	for _, b := range append(pages, staging) {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
	if u := d.Usage(); len(u) != 0 {
		t.Errorf("usage after all was closed: %v", u)
	}
}

// testLeak: Close of a device with an open buffer is device.ErrLeak with the purpose and the size.
// The device is closed nevertheless. A second Close is not an error, and neither is a late Close of
// the buffer.
func testLeak(t *testing.T, open launches.Opener) {
	d := open(t, 0)
	b, err := d.Alloc(123, "lost pages")
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	err = d.Close()
	launches.Want(t, "close with open handles", err, device.ErrLeak)
	if err != nil && (!strings.Contains(err.Error(), "lost pages") || !strings.Contains(err.Error(), "123") ||
		!strings.Contains(err.Error(), "stream")) {
		t.Errorf("the report does not name what was lost: %v", err)
	}
	if err := d.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	if err := errors.Join(b.Close(), s.Close()); err != nil { // late owners do no harm
		t.Errorf("close after the device: %v", err)
	}
	launches.Want(t, "write after the device", b.Write(0, []byte{1}), device.ErrClosed)
}

// testClosedDevice: a closed device refuses every call with device.ErrClosed, but still answers who
// it was.
func testClosedDevice(t *testing.T, open launches.Opener) {
	d := open(t, 0)
	k := launches.FindKernel(t, d, "fill_u32")
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := d.Alloc(1, "devicetest")
	launches.Want(t, "alloc", err, device.ErrClosed)
	_, err = d.NewStream()
	launches.Want(t, "stream", err, device.ErrClosed)
	_, _, err = d.Memory()
	launches.Want(t, "memory", err, device.ErrClosed)
	_, err = d.Kernel("fill_u32")
	launches.Want(t, "kernel", err, device.ErrClosed)
	if p := d.Properties(); p.Name == "" || k.Name() != "fill_u32" {
		t.Error("facts are gone with the device")
	}
}

// testReopen opens and uses devices one after the other, and two at a time. Each opening has
// another Generation, and handles of one are refused by the other, although both may be the same
// hardware.
func testReopen(t *testing.T, open launches.Opener) {
	for range 3 {
		d := open(t, 0)
		b, err := d.Alloc(1<<20, "devicetest")
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Fill(0, 1<<20, 1); err != nil {
			t.Error(err)
		}
		if err := errors.Join(b.Close(), d.Close()); err != nil {
			t.Error(err)
		}
	}
	one, two := launches.Open(t, open), launches.Open(t, open)
	if g := one.Properties().Generation; g == 0 || g == two.Properties().Generation {
		t.Errorf("generations %d and %d", g, two.Properties().Generation)
	}
	foreign := launches.Alloc(t, two, 64)
	s := launches.NewStream(t, one)
	err := s.Launch(launches.FindKernel(t, one, "fill_u32"), device.Geometry{Grid: 1, Block: 32}, device.Ptr(foreign),
		device.Uint64(1), device.Uint32(1))
	launches.Want(t, "a buffer of another device", err, device.ErrInvalidArgument)
}
