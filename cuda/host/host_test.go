package host

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, opts Options) *Device {
	t.Helper()
	opts.Logger = slog.New(slog.DiscardHandler)
	d, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

type words []uint32

func (*words) Signature() []device.Param {
	return []device.Param{{Name: "mem", Kind: device.KindBuffer}}
}
func (w *words) Bind(values []kernels.Value) { *w = device.Of[uint32](values[0].Mem) }

// testKernel is a kernel that does the work of fn.
func testKernel(d *Device, fn func(b *twins.Block, w *words)) *kernel {
	of := twins.Of(fn)
	return &kernel{dev: d, name: "test", sig: of.Params, twin: of}
}

// launchTwin runs fn as a kernel.
func launchTwin(t *testing.T, d *Device, fn func(b *twins.Block, w *words), mem device.Buffer, grid int) error {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("an error that Sync has returned comes again: %v", err)
		}
	}()
	if err := s.Launch(testKernel(d, fn), device.Geometry{Grid: grid, Block: 1}, device.Ptr(mem)); err != nil {
		t.Fatal(err)
	}
	return s.Sync(context.Background())
}

func TestEveryBlockRunsOnce(t *testing.T) {
	for _, workers := range []int{1, 2, 7} {
		d := open(t, Options{Workers: workers})
		for _, grid := range []int{1, 2, 3, 100, 4097, 100_000} {
			mem, err := d.Alloc(int64(grid)*4, "test")
			if err != nil {
				t.Fatal(err)
			}
			if err := mem.Fill(0, mem.Size(), 0); err != nil {
				t.Fatal(err)
			}
			err = launchTwin(t, d, func(b *twins.Block, w *words) { atomic.AddUint32(&(*w)[b.Index], 1) },
				mem, grid)
			if err != nil {
				t.Fatal(err)
			}
			seen := make([]uint32, grid)
			if err := mem.Read(0, device.Bytes(seen)); err != nil {
				t.Fatal(err)
			}
			for i, n := range seen {
				if n != 1 {
					t.Fatalf("%d workers, grid %d: block %d ran %d times", workers, grid, i, n)
				}
			}
			if err := mem.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A twin that leaves its buffer breaks the device, as an illegal address breaks a CUDA context; the
// process continues.
func TestPanicIsSticky(t *testing.T) {
	d := open(t, Options{Workers: 3})
	mem, err := d.Alloc(64, "test")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if i == 0 {
			err = launchTwin(t, d, func(b *twins.Block, w *words) { (*w)[b.Index]++ }, mem, 1000)
		} else {
			err = mem.Write(0, []byte{1})
		}
		if !errors.Is(err, device.ErrSticky) {
			t.Errorf("step %d: got %v, want ErrSticky", i, err)
		}
	}
	if _, err := d.Alloc(1, "test"); !errors.Is(err, device.ErrSticky) {
		t.Errorf("alloc after a fault: %v", err)
	}
	if err := mem.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	again := open(t, Options{})
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

func TestSyncHonoursContext(t *testing.T) {
	d := open(t, Options{Workers: 2})
	defer d.Close()
	mem, err := d.Alloc(8, "test")
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	release := make(chan struct{})
	k := testKernel(d, func(*twins.Block, *words) { <-release })
	if err := s.Launch(k, device.Geometry{Grid: 1, Block: 1}, device.Ptr(mem)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := s.Sync(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	close(release)
	if err := s.Sync(context.Background()); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestGuards(t *testing.T) {
	d := open(t, Options{})
	defer d.Close()
	for _, at := range []int64{-1, 100} {
		buf, err := d.Alloc(100, "test")
		if err != nil {
			t.Fatal(err)
		}
		b := buf.(*buffer)
		if p := uintptr(unsafe.Pointer(unsafe.SliceData(b.mem))); p%align != 0 {
			t.Errorf("memory at %x", p)
		}
		b.whole[guard+at] ^= 1
		if err := b.Close(); !errors.Is(err, device.ErrSticky) {
			t.Errorf("a byte at %d was overwritten: %v", at, err)
		}
	}
}
