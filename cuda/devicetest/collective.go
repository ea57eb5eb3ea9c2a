package devicetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
)

// CollectiveOpener opens a collective over fresh devices, two or more. The suite closes the
// collective and then its devices.
type CollectiveOpener func(t testing.TB) device.Collective

// RunCollective is the conformance suite of device.Collective: sums and gathered bytes are equal to
// what the host computes. Each test opens its own collective.
func RunCollective(t *testing.T, open CollectiveOpener) {
	t.Run("sum", func(t *testing.T) { testSum(t, open) })
	t.Run("gather", func(t *testing.T) { testGather(t, open) })
	t.Run("order", func(t *testing.T) { testCollectiveOrder(t, open) })
	t.Run("large", func(t *testing.T) { testLarge(t, open) })
	t.Run("arguments", func(t *testing.T) { testCollectiveArguments(t, open) })
	t.Run("context", func(t *testing.T) { testCollectiveContext(t, open) })
	t.Run("closed", func(t *testing.T) { testClosedCollective(t, open) })
}

// collected opens a collective and a stream for each rank. It closes everything at the end of the
// test, the collective twice, which must do no harm.
func collected(t testing.TB, open CollectiveOpener) (device.Collective, []device.Stream) {
	t.Helper()
	c := open(t)
	devices := c.Devices()
	if len(devices) < 2 {
		t.Fatalf("%d devices: the suite needs two", len(devices))
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Errorf("close collective: %v", err)
		}
		for _, d := range devices {
			if err := d.Close(); err != nil {
				t.Errorf("close device: %v", err)
			}
		}
	})
	var streams []device.Stream
	for _, d := range devices {
		streams = append(streams, launches.NewStream(t, d))
	}
	return c, streams
}

// places returns a place of n bytes for each rank, with guards of poison before and after it that a
// call must not write. The offsets differ from rank to rank.
func places(t testing.TB, c device.Collective, streams []device.Stream, n int64) []device.Place {
	t.Helper()
	var all []device.Place
	for rank, d := range c.Devices() {
		off := int64(device.RangeAlign * (1 + 3*rank))
		all = append(all, device.Place{Stream: streams[rank], Buffer: launches.Alloc(t, d, off+n+guardBytes), Off: off})
	}
	return all
}

// guardBytes is the length of the guard after a place.
const guardBytes = 48

// holds ends the test unless a place has exactly the bytes need, with poison around them. what
// names the call.
func holds(t testing.TB, what string, p device.Place, need []byte) {
	t.Helper()
	got := launches.Download(t, p.Buffer)
	whole := bytes.Repeat([]byte{launches.Poison}, len(got))
	copy(whole[p.Off:], need)
	if !bytes.Equal(got, whole) {
		at := 0
		for got[at] == whole[at] {
			at++
		}
		t.Fatalf("%s: byte %d of %d, %d behind the start of the place, is %#x, want %#x", what, at, len(got),
			int64(at)-p.Off, got[at], whole[at])
	}
}

// call returns a context that is over when a call takes too long.
func call(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), launches.Patience)
	t.Cleanup(cancel)
	return ctx
}

// collectiveSizes are numbers of elements, around the widths of vectors, warps and blocks.
var collectiveSizes = []int{0, 1, 2, 3, 7, 31, 257, 4096, 70_001}

// testSum compares sums of both kinds of elements, of all sizes.
func testSum(t *testing.T, open CollectiveOpener) {
	c, streams := collected(t, open)
	t.Logf("route %+v over %d devices", c.Route(), len(c.Devices()))
	r := rand.New(rand.NewPCG(51, 52))
	for _, n := range collectiveSizes {
		sumOf(t, c, streams, n, device.KindUint32, r.Uint32)
		sumOf(t, c, streams, n, device.KindUint64, r.Uint64)
	}
}

// sumOf compares two sums of random elements in succession. Elements wrap around.
func sumOf[T uint32 | uint64](t *testing.T, c device.Collective, streams []device.Stream, n int, kind device.Kind,
	draw func() T,
) {
	t.Helper()
	size := device.ElementBytes(kind)
	need := make([]T, n)
	all := places(t, c, streams, int64(n)*size)
	for _, p := range all {
		own := make([]T, n)
		for i := range own {
			own[i] = draw()
			need[i] += own[i]
		}
		launches.Write(t, p.Buffer, p.Off, device.Bytes(own))
	}
	for again := range 2 { // the second sums the results of the first, which are the same in every rank
		if err := c.Sum(call(t), kind, int64(n), all); err != nil {
			t.Fatal(err)
		}
		for rank, p := range all {
			holds(t, fmt.Sprintf("sum %d of %d %v, rank %d", again, n, kind, rank), p, device.Bytes(need))
		}
		for i := range need {
			need[i] *= T(len(all))
		}
	}
}

// testGather: every rank receives the bytes of all ranks, in their order.
func testGather(t *testing.T, open CollectiveOpener) {
	c, streams := collected(t, open)
	for i, n := range collectiveSizes {
		ranks := len(streams)
		all, need := places(t, c, streams, int64(n*ranks)), launches.RandomBytes(uint64(60+i), n*ranks)
		for rank, p := range all {
			launches.Write(t, p.Buffer, p.Off+int64(rank*n), need[rank*n:][:n])
		}
		if err := c.Gather(call(t), int64(n), all); err != nil {
			t.Fatal(err)
		}
		for rank, p := range all {
			holds(t, fmt.Sprintf("gather of %d bytes, rank %d", n, rank), p, need)
		}
	}
}

// testCollectiveOrder: a call begins after the work that the streams already have, and work that
// they get later begins after the call.
func testCollectiveOrder(t *testing.T, open CollectiveOpener) {
	c, streams := collected(t, open)
	const n = 1 << 16
	all := places(t, c, streams, 4*n)
	copies := make([]device.Buffer, len(all))
	total := uint32(0)
	// No Sync is between the launches, the sum and the copies of a round.
	for round := range uint32(20) {
		total = 0
		for rank, p := range all {
			value := 1000*round + uint32(rank)
			total += value
			k := launches.FindKernel(t, c.Devices()[rank], "fill_u32")
			launches.Start(t, p.Stream, k, k.Cover(n), device.Range(p.Buffer, p.Off, 4*n), device.Uint64(n),
				device.Uint32(value))
		}
		if err := c.Sum(call(t), device.KindUint32, n, all); err != nil {
			t.Fatal(err)
		}
		for rank, p := range all {
			if round == 0 {
				copies[rank] = launches.Alloc(t, c.Devices()[rank], 4*n)
			}
			if err := p.Stream.Copy(copies[rank], 0, p.Buffer, p.Off, 4*n); err != nil {
				t.Fatal(err)
			}
		}
		for rank, p := range all {
			launches.Wait(t, p.Stream)
			got := device.Of[uint32](launches.Download(t, copies[rank]))
			for i, v := range got {
				if v != total {
					t.Fatalf("round %d, rank %d, element %d: %d, want %d", round, rank, i, v, total)
				}
			}
		}
	}
}

// testLarge: calls over more bytes than staging memory holds at a time, and no multiple of its
// size.
func testLarge(t *testing.T, open CollectiveOpener) {
	c, streams := collected(t, open)
	const n = 9<<20 + 123 // bytes of a rank
	all := places(t, c, streams, n*int64(len(streams)))
	need := launches.RandomBytes(70, n*len(streams))
	for rank, p := range all {
		launches.Write(t, p.Buffer, p.Off+int64(rank*n), need[rank*n:][:n])
	}
	if err := c.Gather(call(t), n, all); err != nil {
		t.Fatal(err)
	}
	for rank, p := range all {
		holds(t, fmt.Sprintf("large gather, rank %d", rank), p, need)
	}
	const words = n / 8
	if err := c.Sum(call(t), device.KindUint64, words, all); err != nil {
		t.Fatal(err)
	}
	// Every rank has the same bytes after the gather, so a sum is a multiple of them.
	sums := device.Of[uint64](bytes.Clone(need[:8*words]))
	for i := range sums {
		sums[i] *= uint64(len(all))
	}
	copy(need, device.Bytes(sums))
	for rank, p := range all {
		holds(t, fmt.Sprintf("large sum, rank %d", rank), p, need)
	}
}

// testCollectiveArguments: a call with wrong arguments fails and changes nothing, and the
// collective still works.
func testCollectiveArguments(t *testing.T, open CollectiveOpener) {
	c, streams := collected(t, open)
	ctx, ranks := call(t), len(streams)
	all := places(t, c, streams, 64*int64(ranks))
	changed := func(fn func(p []device.Place)) []device.Place {
		other := append([]device.Place{}, all...)
		fn(other)
		return other
	}
	// Each case is wrong in one respect only.
	room := all[1].Buffer.Size()
	for what, p := range map[string][]device.Place{
		"a place too few":  all[1:],
		"a place too many": append(changed(func([]device.Place) {}), all[0]),
		"no stream":        changed(func(p []device.Place) { p[1].Stream = nil }),
		"no memory":        changed(func(p []device.Place) { p[0].Buffer = nil }),
		"an odd offset":    changed(func(p []device.Place) { p[1].Off = 8 }),
		"behind the end":   changed(func(p []device.Place) { p[1].Off = room / 16 * 16 }),
		"below the start":  changed(func(p []device.Place) { p[1].Off = -16 }),
		"memory of another rank": changed(func(p []device.Place) {
			p[0].Buffer, p[1].Buffer = p[1].Buffer,
				p[0].Buffer
		}),
		"a stream of another": changed(func(p []device.Place) {
			p[0].Stream, p[1].Stream = p[1].Stream,
				p[0].Stream
		}),
		"the same memory twice": changed(func(p []device.Place) { p[1].Buffer, p[1].Off = p[0].Buffer, p[0].Off }),
	} {
		launches.Want(t, "sum: "+what, c.Sum(ctx, device.KindUint64, 8, p), device.ErrInvalidArgument)
		launches.Want(t, "gather: "+what, c.Gather(ctx, 64, p), device.ErrInvalidArgument)
	}
	for _, n := range []int64{-1, 1 << 40, 1 << 60, 1<<63 - 1} {
		launches.Want(t, "sum of too many", c.Sum(ctx, device.KindUint64, n, all), device.ErrInvalidArgument)
		launches.Want(t, "gather of too many", c.Gather(ctx, n, all), device.ErrInvalidArgument)
	}
	for _, k := range []device.Kind{0, device.KindBuffer, device.KindFloat32, device.KindInt32} {
		launches.Want(t, "sum of "+k.String(), c.Sum(ctx, k, 1, all), device.ErrInvalidArgument)
	}
	for _, p := range all {
		holds(t, "after what was refused", p, nil)
	}
	sumOf(t, c, streams, 100, device.KindUint32, func() uint32 { return 7 }) // it works still
}

// testCollectiveContext: a context that is over ends a call, and the next call works.
func testCollectiveContext(t *testing.T, open CollectiveOpener) {
	c, streams := collected(t, open)
	over, cancel := context.WithCancel(context.Background())
	cancel()
	all := places(t, c, streams, 1<<20)
	launches.Want(t, "sum", c.Sum(over, device.KindUint32, 1<<18, all), context.Canceled)
	launches.Want(t, "gather", c.Gather(over, 1<<18, all[:len(streams)]), context.Canceled)
	for _, s := range streams {
		launches.Wait(t, s)
	}
	sumOf(t, c, streams, 1000, device.KindUint64, func() uint64 { return 1<<63 + 5 })
}

// testClosedCollective: calls of a closed collective fail with device.ErrClosed.
func testClosedCollective(t *testing.T, open CollectiveOpener) {
	c, streams := collected(t, open)
	all := places(t, c, streams, 1024)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	launches.Want(t, "sum", c.Sum(call(t), device.KindUint32, 8, all), device.ErrClosed)
	launches.Want(t, "gather", c.Gather(call(t), 8, all), device.ErrClosed)
}

// BenchCollective measures sums and gathers of growing sizes. It reports the bytes of a rank in a
// second: for a sum the bytes of its elements, for a gather the received bytes. It compares the
// result of one gather of each size with the result of the host.
func BenchCollective(b *testing.B, open CollectiveOpener) {
	c, streams := collected(b, open)
	ranks := len(streams)
	b.Logf("route %+v over %d devices", c.Route(), ranks)
	for _, n := range []int64{1 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20} {
		var all []device.Place
		for rank, d := range c.Devices() {
			buf, err := d.Alloc(n*int64(ranks), "bench")
			if err != nil {
				b.Skip(err)
			}
			// The content of a rank repeats every 64 KiB, which is enough to compare.
			data := launches.RandomBytes(uint64(rank), int(min(n, 1<<16)))
			for off := int64(0); off < n; off += int64(len(data)) {
				if err := buf.Write(int64(rank)*n+off, data); err != nil {
					b.Fatal(err)
				}
			}
			all = append(all, device.Place{Stream: streams[rank], Buffer: buf})
		}
		if err := c.Gather(call(b), n, all); err != nil {
			b.Fatal(err)
		}
		for _, p := range all {
			for from := range ranks {
				got := make([]byte, min(n, 1<<16))
				if err := p.Buffer.Read(int64(from)*n, got); err != nil ||
					!bytes.Equal(got, launches.RandomBytes(uint64(from), len(got))) {
					b.Fatalf("gather: other bytes (%v)", err)
				}
			}
		}
		// moved is the number of bytes of a rank that a call moves.
		run := func(name string, moved int64, fn func() error) {
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(moved)
				for b.Loop() {
					if err := fn(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		run("gather", n*int64(ranks-1), func() error { return c.Gather(context.Background(), n, all) })
		run("sum", n, func() error { return c.Sum(context.Background(), device.KindUint64, n/8, all) })
		for _, p := range all {
			if err := p.Buffer.Close(); err != nil {
				b.Error(err)
			}
		}
	}
}
