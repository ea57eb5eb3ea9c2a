//go:build cuda

package driver

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/internal/driver/bare"
)

// benchLaunch is what the launch benchmarks share: a kernel of three arguments over one word.
type benchLaunch struct {
	d    *Device
	s    *stream
	k    *kernel
	b    *buffer
	args []device.Arg
	g    device.Geometry
}

func newBenchLaunch(b *testing.B) *benchLaunch {
	b.Helper()
	l := &benchLaunch{d: openGPU(b, Options{}), g: device.Geometry{Grid: 1, Block: 32}}
	mem, err := l.d.Alloc(4, "bench")
	if err != nil {
		b.Fatal(err)
	}
	s, err := l.d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	k, err := l.d.Kernel("fill_u32")
	if err != nil {
		b.Fatal(err)
	}
	l.b, l.s, l.k = mem.(*buffer), s.(*stream), k.(*kernel)
	l.args = []device.Arg{device.Ptr(mem), device.Uint64(1), device.Uint32(1)}
	b.Cleanup(func() {
		_, _ = l.s.Close(), l.b.Close()
		closeGPU(b, l.d)
	})
	for range 1000 {
		l.launch(b)
	}
	l.sync(b)
	return l
}

func (l *benchLaunch) launch(b *testing.B) {
	if err := l.s.Launch(l.k, l.g, l.args...); err != nil {
		b.Fatal(err)
	}
}

func (l *benchLaunch) sync(b *testing.B) {
	if err := l.s.Sync(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// handles are the CUDA handles of the launch, and its arguments as 64-bit values.
func (l *benchLaunch) handles() (ctx, fn, stream uintptr, values []uint64) {
	return uintptr(unsafe.Pointer(l.d.raw)), uintptr(unsafe.Pointer(l.k.fn)), uintptr(unsafe.Pointer(l.s.raw)),
		[]uint64{uint64(l.b.ptr), 1, 1}
}

// The stream takes 1024 launches or so; waiting every 256 keeps its fullness out of the figure of a
// launch.
const burst = 256

func BenchmarkLaunch(b *testing.B) {
	l := newBenchLaunch(b)
	b.ResetTimer()
	for i := range b.N {
		l.launch(b)
		if i%burst == burst-1 {
			b.StopTimer()
			l.sync(b)
			b.StartTimer()
		}
	}
}

func BenchmarkLaunchBare(b *testing.B) {
	l := newBenchLaunch(b)
	ctx, fn, stream, values := l.handles()
	var total float64
	for done := 0; done < b.N; done += burst {
		t, err := bare.Launches(ctx, fn, stream, l.g.Grid, l.g.Block, values, burst, false)
		if err != nil {
			b.Fatal(err)
		}
		total += float64(t) / burst * float64(min(burst, b.N-done))
		l.sync(b)
	}
	b.ReportMetric(total/float64(b.N), "ns/op")
}

func BenchmarkLaunchSync(b *testing.B) {
	l := newBenchLaunch(b)
	for b.Loop() {
		l.launch(b)
		l.sync(b)
	}
}

func BenchmarkLaunchSyncBare(b *testing.B) {
	l := newBenchLaunch(b)
	ctx, fn, stream, values := l.handles()
	t, err := bare.Launches(ctx, fn, stream, l.g.Grid, l.g.Block, values, b.N, true)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(t)/float64(b.N), "ns/op")
}

// BenchmarkAlloc is an allocation and its end: of a cached block, of one from the driver, and in
// the order of a stream.
func BenchmarkAlloc(b *testing.B) {
	d := openGPU(b, Options{})
	defer closeGPU(b, d)
	s, err := d.NewStream()
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	cycle := func(b *testing.B, after func() error) {
		for b.Loop() {
			m, err := d.Alloc(2<<20, "bench")
			if err != nil {
				b.Fatal(err)
			}
			if err := errors.Join(m.Close(), after()); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("cached", func(b *testing.B) { cycle(b, func() error { return nil }) })
	b.Run("driver", func(b *testing.B) { cycle(b, func() error { _, err := d.Trim(); return err }) })
	b.Run("stream", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			m, err := s.Alloc(2<<20, "bench")
			if err != nil {
				b.Fatal(err)
			}
			if err := s.Release(m); err != nil {
				b.Fatal(err)
			}
			if i%burst == 0 {
				if err := s.Sync(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

func BenchmarkCopy(b *testing.B) {
	d := openGPU(b, Options{})
	defer closeGPU(b, d)
	for _, n := range []int{64, 4 << 10, 64 << 10, 128 << 10, 129 << 10, 256 << 10, 2 << 20, 256 << 20} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(i * 7)
		}
		m, err := d.Alloc(int64(n), "bench")
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprintf("write/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := m.Write(0, data); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("read/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				if err := m.Read(0, data); err != nil {
					b.Fatal(err)
				}
			}
		})
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkChecksum is the rate at which residency can be verified: bytes read over a buffer far
// larger than the L2.
func BenchmarkChecksum(b *testing.B) {
	const n = 4 << 30
	l := newBenchLaunch(b)
	data, err := l.d.Alloc(n, "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer data.Close()
	r := rand.NewChaCha8([32]byte{1})
	chunk := make([]byte, 64<<20)
	for off := int64(0); off < n; off += int64(len(chunk)) {
		if off%(1<<30) == 0 {
			_, _ = r.Read(chunk) // never fails
		}
		if err := data.Write(off, chunk); err != nil {
			b.Fatal(err)
		}
	}
	sum, err := l.d.Alloc(8, "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer sum.Close()
	k, err := l.d.Kernel("checksum")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(n)
	for b.Loop() {
		if err := l.s.Launch(k, device.Geometry{Grid: 8 * l.d.props.Multiprocessors, Block: 256}, device.Ptr(data),
			device.Uint64(n), device.Ptr(sum)); err != nil {
			b.Fatal(err)
		}
		l.sync(b)
	}
}
