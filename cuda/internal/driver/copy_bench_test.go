//go:build cuda

package driver

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest"
	"github.com/exoswarm/exoswarm/cuda/internal/driver/bare"
)

// The benchmarks of copies report the median rate in GB/s (10^9) of what moved: bytes read plus
// bytes written for a copy on the device, else the bytes over the bus. Each compares what has
// arrived with what was sent.

// medians times b.N runs of fn and returns the sorted times.
func medians(b *testing.B, fn func() error) []time.Duration {
	b.Helper()
	for range 3 {
		if err := fn(); err != nil {
			b.Fatal(err)
		}
	}
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		if err := fn(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	return took
}

func median[T int64 | time.Duration](v []T) T {
	slices.Sort(v)
	return v[len(v)/2]
}

func reportRate(b *testing.B, bytes int64, took []time.Duration) {
	b.Helper()
	b.ReportMetric(float64(bytes)/float64(took[len(took)/2].Nanoseconds()), "GB/s")
}

type benchCopy struct {
	d       *Device
	streams [2]device.Stream
	bufs    [2]device.Buffer
	hosts   [2]device.HostBuffer
}

// newBenchCopy makes two of everything, n bytes long, with random content.
func newBenchCopy(b *testing.B, n int64, host bool) *benchCopy {
	b.Helper()
	c := &benchCopy{d: openGPU(b, Options{})}
	var all []interface{ Close() error }
	b.Cleanup(func() {
		for _, h := range all {
			if err := h.Close(); err != nil {
				b.Error(err)
			}
		}
		closeGPU(b, c.d)
	})
	for i := range 2 {
		var err error
		if c.streams[i], err = c.d.NewStream(); err != nil {
			b.Fatal(err)
		}
		if c.bufs[i], err = c.d.Alloc(n, "bench"); err != nil {
			b.Fatal(err)
		}
		all = append(all, c.streams[i], c.bufs[i])
		r := rand.NewChaCha8([32]byte{byte(i)})
		part := make([]byte, min(n, 64<<20))
		_, _ = r.Read(part) // never fails
		for off := int64(0); off < n; off += int64(len(part)) {
			binary.LittleEndian.PutUint64(part, r.Uint64())
			if err := c.bufs[i].Write(off, part[:min(int64(len(part)), n-off)]); err != nil {
				b.Fatal(err)
			}
		}
		if !host {
			continue
		}
		if c.hosts[i], err = c.d.AllocHost(n, "bench"); err != nil {
			b.Fatal(err)
		}
		all = append(all, c.hosts[i])
		_, _ = r.Read(c.hosts[i].Bytes())
	}
	return c
}

func (c *benchCopy) sum(b testing.TB, m device.Buffer) uint64 {
	b.Helper()
	out, err := c.d.Alloc(8, "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	k, err := c.d.Kernel("checksum")
	if err != nil {
		b.Fatal(err)
	}
	got := make([]uint64, 1)
	err = errors.Join(out.Fill(0, 8, 0),
		c.streams[0].Launch(k, device.Geometry{Grid: 1056, Block: 256}, device.Ptr(m), device.Uint64(uint64(m.Size())),
			device.Ptr(out)),
		c.streams[0].Sync(context.Background()), out.Read(0, device.Bytes(got)))
	if err != nil {
		b.Fatal(err)
	}
	return got[0]
}

func (c *benchCopy) bare(b *testing.B, direction int, n, moved int64) {
	b.Helper()
	t, err := bare.Copies(uintptr(unsafe.Pointer(c.d.raw)), direction, n, 20)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(moved)/float64(t.Nanoseconds()), "bare-GB/s")
}

const pinnedBytes = 512 << 20

func BenchmarkPinned(b *testing.B) {
	ctx := context.Background()
	for name, way := range map[string]struct {
		copy func(c *benchCopy) error
		bare int
	}{
		"upload": {func(c *benchCopy) error {
			return c.streams[0].Upload(c.bufs[0], 0, c.hosts[0], 0, pinnedBytes)
		}, bare.HostToDevice},
		"download": {func(c *benchCopy) error {
			return c.streams[0].Download(c.hosts[0], 0, c.bufs[0], 0, pinnedBytes)
		}, bare.DeviceToHost},
	} {
		b.Run(name, func(b *testing.B) {
			c := newBenchCopy(b, pinnedBytes, true)
			took := medians(b, func() error { return errors.Join(way.copy(c), c.streams[0].Sync(ctx)) })
			reportRate(b, pinnedBytes, took)
			if c.sum(b, c.bufs[0]) != devicetest.Checksum(c.hosts[0].Bytes()) {
				b.Error("other bytes have arrived")
			}
			c.bare(b, way.bare, pinnedBytes, pinnedBytes)
		})
	}
	b.Run("both", func(b *testing.B) {
		c := newBenchCopy(b, pinnedBytes, true)
		took := medians(b, func() error {
			return errors.Join(c.streams[0].Upload(c.bufs[0], 0, c.hosts[0], 0, pinnedBytes),
				c.streams[1].Download(c.hosts[1], 0, c.bufs[1], 0, pinnedBytes),
				c.streams[0].Sync(ctx), c.streams[1].Sync(ctx))
		})
		reportRate(b, 2*pinnedBytes, took)
		for i := range 2 {
			if c.sum(b, c.bufs[i]) != devicetest.Checksum(c.hosts[i].Bytes()) {
				b.Error("other bytes have arrived")
			}
		}
	})
}

func BenchmarkCopyOnDevice(b *testing.B) {
	const n = 4 << 30
	ctx := context.Background()
	c := newBenchCopy(b, n, false)
	took := medians(b, func() error {
		return errors.Join(c.streams[0].Copy(c.bufs[1], 0, c.bufs[0], 0, n), c.streams[0].Sync(ctx))
	})
	reportRate(b, 2*n, took)
	if c.sum(b, c.bufs[0]) != c.sum(b, c.bufs[1]) {
		b.Error("other bytes have arrived")
	}
	c.bare(b, bare.OnDevice, n, 2*n)
}

// BenchmarkPage moves pages of 2 MiB between random frames: alone, with its latency, and many in a
// row.
func BenchmarkPage(b *testing.B) {
	const page, frames = 2 << 20, 256
	ctx := context.Background()
	r := rand.New(rand.NewPCG(1, 2))
	for _, up := range []bool{true, false} {
		name := "download"
		if up {
			name = "upload"
		}
		move := func(c *benchCopy, host, frame int) error {
			if up {
				return c.streams[0].Upload(c.bufs[0], int64(frame)*page, c.hosts[0], int64(host)*page, page)
			}
			return c.streams[0].Download(c.hosts[0], int64(host)*page, c.bufs[0], int64(frame)*page, page)
		}
		b.Run(name+"/one", func(b *testing.B) {
			c := newBenchCopy(b, page*frames, true)
			took := medians(b, func() error {
				return errors.Join(move(c, r.IntN(frames), r.IntN(frames)), c.streams[0].Sync(ctx))
			})
			reportRate(b, page, took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, "p99-us")
		})
		for _, lanes := range []int{0, 1, 2} { // 0: a batch of the driver
			how := "/all/batch"
			if lanes > 0 {
				how = fmt.Sprint("/all/", lanes, "-streams")
			}
			b.Run(name+how, func(b *testing.B) {
				defer func(n int) { moveLanes, batches = n, true }(moveLanes)
				if lanes > 0 {
					moveLanes, batches = lanes, false
				}
				c := newBenchCopy(b, page*frames, true)
				pieces := make([]device.Piece, frames)
				for i, f := range r.Perm(frames) {
					pieces[i] = device.Piece{
						Buffer: c.bufs[0], Off: int64(f) * page, Host: c.hosts[0],
						HostOff: int64(i) * page, Bytes: page,
					}
				}
				took := medians(b, func() error {
					if up {
						return errors.Join(c.streams[0].UploadAll(pieces), c.streams[0].Sync(ctx))
					}
					return errors.Join(c.streams[0].DownloadAll(pieces), c.streams[0].Sync(ctx))
				})
				reportRate(b, page*frames, took)
				frame := make([]byte, page)
				for i, p := range pieces {
					if err := c.bufs[0].Read(p.Off, frame); err != nil {
						b.Fatal(err)
					}
					if string(frame) != string(c.hosts[0].Bytes()[p.HostOff:p.HostOff+page]) {
						b.Fatalf("page %d has other bytes", i)
					}
				}
				t, err := bare.Batch(uintptr(unsafe.Pointer(c.d.raw)), up, page, frames, 20)
				if err != nil {
					b.Log(err)
					return
				}
				b.ReportMetric(float64(page*frames)/float64(t.Nanoseconds()), "bare-batch-GB/s")
			})
		}
		b.Run(name+"/row", func(b *testing.B) {
			c := newBenchCopy(b, page*frames, true)
			order := r.Perm(frames)
			took := medians(b, func() error {
				for i, f := range order {
					if err := move(c, i, f); err != nil {
						return err
					}
				}
				return c.streams[0].Sync(ctx)
			})
			reportRate(b, page*frames, took)
			frame := make([]byte, page)
			for i, f := range order {
				if err := c.bufs[0].Read(int64(f)*page, frame); err != nil {
					b.Fatal(err)
				}
				if string(frame) != string(c.hosts[0].Bytes()[i*page:(i+1)*page]) {
					b.Fatalf("page %d has other bytes", i)
				}
			}
		})
	}
}
