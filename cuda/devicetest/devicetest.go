// Package devicetest is the conformance suite of cuda/device: what the contract promises, asked of
// every device in the same words. The host device is the reference of kernel results: integers
// equal, floats within the bound that their case states, which is zero for the kernels of the set.
//
// To add a kernel to the set, add its case to cases.go; a kernel without one fails the suite.
package devicetest

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host"
)

// Opener opens a fresh device under test with a limit of so many bytes of device memory, 0 for
// none. The suite closes what it opens.
type Opener func(t testing.TB, memoryLimit int64) device.Device

// Run holds the devices that open makes to the contract.
func Run(t *testing.T, open Opener) {
	t.Run("properties", func(t *testing.T) { testProperties(t, open) })
	t.Run("buffer/ranges", func(t *testing.T) { testRanges(t, open) })
	t.Run("buffer/random", func(t *testing.T) { testRandomAccess(t, open) })
	t.Run("buffer/neighbours", func(t *testing.T) { testNeighbours(t, open) })
	t.Run("buffer/views", func(t *testing.T) { testViews(t, open) })
	t.Run("buffer/closed", func(t *testing.T) { testClosedBuffer(t, open) })
	t.Run("buffer/host", func(t *testing.T) { testHostBuffer(t, open) })
	t.Run("copy/stream", func(t *testing.T) { testStreamCopies(t, open) })
	t.Run("copy/pieces", func(t *testing.T) { testPieces(t, open) })
	t.Run("copy/arguments", func(t *testing.T) { testCopyArguments(t, open) })
	t.Run("copy/peer", func(t *testing.T) { testPeerCopies(t, open) })
	t.Run("event/order", func(t *testing.T) { testEventOrder(t, open) })
	t.Run("event/calls", func(t *testing.T) { testEvents(t, open) })
	t.Run("graph/replay", func(t *testing.T) { testGraph(t, open) })
	t.Run("graph/capture", func(t *testing.T) { testCapture(t, open) })
	t.Run("graph/await", func(t *testing.T) { testAwait(t, open) })
	t.Run("memory/limit", func(t *testing.T) { testLimit(t, open) })
	t.Run("memory/usage", func(t *testing.T) { testUsage(t, open) })
	t.Run("memory/leak", func(t *testing.T) { testLeak(t, open) })
	t.Run("memory/handles", func(t *testing.T) { testLeakedHandles(t, open) })
	t.Run("memory/churn", func(t *testing.T) { testChurn(t, open) })
	t.Run("memory/stream", func(t *testing.T) { testStreamMemory(t, open) })
	t.Run("memory/release", func(t *testing.T) { testRelease(t, open) })
	t.Run("kernel/set", func(t *testing.T) { testSet(t, open) })
	t.Run("kernel/cases", func(t *testing.T) { testCases(t, open) })
	t.Run("kernel/cover", func(t *testing.T) { testCover(t, open) })
	t.Run("kernel/compile", func(t *testing.T) { testCompile(t, open) })
	t.Run("kernel/compile-exact", func(t *testing.T) { testCompileExact(t, open) })
	t.Run("kernel/tallies", func(t *testing.T) { testTallies(t, open) })
	t.Run("kernel/launches", func(t *testing.T) { testLaunches(t, open) })
	t.Run("kernel/fusions", func(t *testing.T) { testFusions(t, open) })
	t.Run("kernel/reciprocals", func(t *testing.T) { testReciprocals(t, open) })
	t.Run("kernel/arguments", func(t *testing.T) { testArguments(t, open) })
	t.Run("gemm/product", func(t *testing.T) { testGemm(t, open) })
	t.Run("gemm/arguments", func(t *testing.T) { testGemmArguments(t, open) })
	t.Run("stream/order", func(t *testing.T) { testOrder(t, open) })
	t.Run("stream/context", func(t *testing.T) { testSyncContext(t, open) })
	t.Run("stream/closed", func(t *testing.T) { testClosedStream(t, open) })
	t.Run("device/closed", func(t *testing.T) { testClosedDevice(t, open) })
	t.Run("device/reopen", func(t *testing.T) { testReopen(t, open) })
	t.Run("device/health", func(t *testing.T) { testHealth(t, open) })
	t.Run("device/concurrent", func(t *testing.T) { testConcurrent(t, open) })
}

// patience is how long the suite waits for work that takes milliseconds.
const patience = 2 * time.Minute

// opened opens a device and closes it at the end of the test, when nothing may be open any more.
func opened(t testing.TB, open Opener) device.Device {
	t.Helper()
	d := open(t, 0)
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("close device: %v", err)
		}
	})
	return d
}

// reference opens the host device that results are compared with.
func reference(t testing.TB) device.Device {
	t.Helper()
	return opened(t, func(t testing.TB, limit int64) device.Device {
		d, err := host.Open(host.Options{MemoryLimit: limit, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return d
	})
}

// alloc allocates n bytes, filled with poison, and closes them at the end of the test.
func alloc(t testing.TB, d device.Device, n int64) device.Buffer {
	t.Helper()
	b, err := d.Alloc(n, "devicetest")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("close buffer: %v", err)
		}
	})
	if err := b.Fill(0, n, poison); err != nil {
		t.Fatal(err)
	}
	return b
}

// poison is what memory holds before a kernel writes it: as a float a small negative number, so
// that an element that was not written is seen.
const poison = 0xA5

// upload allocates a buffer that holds data.
func upload(t testing.TB, d device.Device, data []byte) device.Buffer {
	t.Helper()
	b := alloc(t, d, int64(len(data)))
	write(t, b, 0, data)
	return b
}

func write(t testing.TB, b device.Buffer, off int64, data []byte) {
	t.Helper()
	if err := b.Write(off, data); err != nil {
		t.Fatal(err)
	}
}

// download returns the content of a buffer.
func download(t testing.TB, b device.Buffer) []byte {
	t.Helper()
	data := make([]byte, b.Size())
	if err := b.Read(0, data); err != nil {
		t.Fatal(err)
	}
	return data
}

// newStream opens a stream and closes it at the end of the test.
func newStream(t testing.TB, d device.Device) device.Stream {
	t.Helper()
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close stream: %v", err)
		}
	})
	return s
}

func findKernel(t testing.TB, d device.Device, name string) device.Kernel {
	t.Helper()
	k, err := d.Kernel(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func launch(t testing.TB, s device.Stream, k device.Kernel, g device.Geometry, args ...device.Arg) {
	t.Helper()
	if err := s.Launch(k, g, args...); err != nil {
		t.Fatal(err)
	}
}

func wait(t testing.TB, s device.Stream) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Sync(ctx); err != nil {
		t.Fatal(err)
	}
}

// want fails unless err is of the class.
func want(t testing.TB, what string, err, class error) {
	t.Helper()
	if !errors.Is(err, class) {
		t.Errorf("%s: got %v, want %v", what, err, class)
	}
}

// randomBytes is reproducible from its seed.
func randomBytes(seed uint64, n int) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func testProperties(t *testing.T, open Opener) {
	d := opened(t, open)
	p := d.Properties()
	if p.Name == "" || p.Requested == "" || p.Model == "" || p.Multiprocessors < 1 || p.MemoryBytes < 1 ||
		p.MaxThreadsPerBlock < 1 {
		t.Errorf("incomplete: %+v", p)
	}
	free, total, err := d.Memory()
	if err != nil {
		t.Fatal(err)
	}
	if free < 0 || free > total || total < 1 {
		t.Errorf("%d bytes free of %d", free, total)
	}
}
