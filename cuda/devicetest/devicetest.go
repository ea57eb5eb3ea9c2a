// Package devicetest is the conformance suite of cuda/device: it tests the same promises of the
// contract on every device. The host device is the reference for the results of kernels: integers
// are equal, and floats are within the bound that their case states, which is zero for the kernels
// of the set.
//
// To add a kernel to the set, add its case to cases.go; a kernel without a case fails the suite.
//
// Most tests compare the device with a model in Go slices. Memory around and behind the data is
// filled with launches.Poison, so that a write outside the data is found. Expected errors are
// compared with launches.Want, and after refused calls a test checks that no byte has changed.
package devicetest

import (
	"testing"

	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// Run tests the devices that open makes. A test opens its own devices and closes them, so tests do
// not depend on their order. open is called with a limit of memory in bytes, or 0 for none. The
// names of the sub-tests are stable: scripts select parts of the suite by them.
func Run(t *testing.T, open launches.Opener) {
	t.Run("properties", func(t *testing.T) { testProperties(t, open) })
	t.Run("buffer/ranges", func(t *testing.T) { testRanges(t, open) })
	t.Run("buffer/random", func(t *testing.T) { testRandomAccess(t, open) })
	t.Run("buffer/neighbours", func(t *testing.T) { testNeighbours(t, open) })
	t.Run("buffer/views", func(t *testing.T) { testViews(t, open) })
	t.Run("buffer/closed", func(t *testing.T) { testClosedBuffer(t, open) })
	t.Run("buffer/host", func(t *testing.T) { testHostBuffer(t, open) })
	t.Run("copy/stream", func(t *testing.T) { testStreamCopies(t, open) })
	t.Run("copy/sizes", func(t *testing.T) { testCopySizes(t, open) })
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
	t.Run("stream/background", func(t *testing.T) { testBackground(t, open) })
	t.Run("stream/context", func(t *testing.T) { testSyncContext(t, open) })
	t.Run("stream/closed", func(t *testing.T) { testClosedStream(t, open) })
	t.Run("device/closed", func(t *testing.T) { testClosedDevice(t, open) })
	t.Run("device/reopen", func(t *testing.T) { testReopen(t, open) })
	t.Run("device/health", func(t *testing.T) { testHealth(t, open) })
	t.Run("device/concurrent", func(t *testing.T) { testConcurrent(t, open) })
}

// testProperties: an open device describes itself completely, and the free memory is a part of all
// memory.
func testProperties(t *testing.T, open launches.Opener) {
	d := launches.Open(t, open)
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
