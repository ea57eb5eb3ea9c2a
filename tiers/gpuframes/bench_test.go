package gpuframes_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/gpuframes"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// The benchmarks of a GPU; rates are in GB/s (10^9) of what crosses the bus, latencies are of Pin:
//
//	go test -tags cuda ./tiers/gpuframes -run '^$' -bench . -benchtime 2s -device cuda:0
//	EXOSWARM_BENCH_DIR=/disk go test -tags cuda ./tiers/gpuframes \
//	  -run '^$' -bench DiskMiss -benchtime 1000x -device cuda:0
const (
	benchPage  = 2 << 20
	benchPages = 256
)

func reportTimes(b *testing.B, prefix string, took []time.Duration) {
	b.Helper()
	if len(took) == 0 {
		b.Fatal("nothing was measured")
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e3, prefix+"p50-us")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e3, prefix+"p99-us")
}

// reportRate reports GB/s from the median time of a transfer of bytes.
func reportRate(b *testing.B, bytes int64, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	b.ReportMetric(float64(bytes)/float64(took[len(took)/2].Nanoseconds()), "GB/s")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkCopy moves 256 pages between random frames, one way and both ways at once, by how many
// are under way.
func BenchmarkCopy(b *testing.B) {
	d := opened(b)
	rng := rand.New(rand.NewPCG(1, 1))
	for _, depth := range []int{2, 4, 8, 16} {
		gpu, host := made(b, d, gpuframes.Options{Count: 2 * benchPages, PageSize: benchPage, Depth: depth},
			2*benchPages)
		for frame := range 2 * benchPages {
			for i, m := 0, host.Frame(frame); i < len(m); i += 4096 {
				m[i] = byte(rng.Uint32())
			}
		}
		var in, out []tiers.Move
		for i, f := range rng.Perm(benchPages) {
			in = append(in, tiers.Move{From: i, To: f})
			out = append(out, tiers.Move{From: benchPages + f, To: benchPages + i})
		}
		ctx := context.Background()
		timed := func(b *testing.B, f func() error) (took []time.Duration) {
			b.ReportAllocs()
			for b.Loop() {
				start := time.Now()
				if err := f(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
			}
			return took
		}
		upload := func() error { return gpu.CopyIn(ctx, host, in, tiers.Background) }
		download := func() error { return gpu.CopyOut(ctx, host, out, tiers.Background) }
		b.Run(fmt.Sprintf("up/depth=%d", depth), func(b *testing.B) {
			reportRate(b, benchPages*benchPage, timed(b, upload))
			got := make([]byte, benchPage)
			for _, mv := range in {
				if err := gpu.Read(mv.To, 0, got); err != nil || !bytes.Equal(got, host.Frame(mv.From)) {
					b.Fatalf("page %d has other bytes: %v", mv.From, err)
				}
			}
		})
		b.Run(fmt.Sprintf("down/depth=%d", depth),
			func(b *testing.B) { reportRate(b, benchPages*benchPage, timed(b, download)) })
		b.Run(fmt.Sprintf("both/depth=%d", depth), func(b *testing.B) {
			reportRate(b, 2*benchPages*benchPage, timed(b, func() error {
				var wg sync.WaitGroup
				var err error
				wg.Go(func() { err = upload() })
				other := download()
				wg.Wait()
				return errors.Join(err, other)
			}))
		})
	}
}

// benchPager is a page manager of a device and pinned memory, with pages in the latter.
func benchPager(b *testing.B, opts pager.Options, gpuCount, hostCount int, pages uint64) (*pager.Pager,
	*gpuframes.Device,
) {
	b.Helper()
	gpu, host := made(b, opened(b), gpuframes.Options{Count: gpuCount, PageSize: benchPage}, hostCount)
	opts.PageSize = benchPage
	opts.Memory = []pager.Memory{{Name: "gpu", Frames: gpu}, {Name: "cpu", Frames: host}}
	p, err := pager.Open(opts)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := p.Close(); err != nil {
			b.Error(err)
		}
	})
	for page := range pages {
		if err := p.Create(b.Context(), page, 1); err != nil {
			b.Fatal(err)
		}
	}
	return p, gpu
}

// BenchmarkMigrate moves 256 pages up and down again through the page manager, by how many it moves
// together.
func BenchmarkMigrate(b *testing.B) {
	for _, batch := range []int{16, 64, 128} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) { benchmarkMigrate(b, batch) })
	}
}

func benchmarkMigrate(b *testing.B, batch int) {
	p, _ := benchPager(b, pager.Options{NoPrefetch: true, Batch: batch}, benchPages+32, 2*benchPages, benchPages)
	ctx := context.Background()
	var all []uint64
	for page := range uint64(benchPages) {
		all = append(all, page)
	}
	var up, down []time.Duration
	var pins []pager.Pin
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		var err error
		if pins, err = p.PinAll(ctx, all, 0, pager.ForReading, pins[:0]); err != nil {
			b.Fatal(err)
		}
		up = append(up, time.Since(start))
		pager.UnpinAll(pins)
		start = time.Now()
		if err := p.DoneWith(ctx, 0, all...); err != nil {
			b.Fatal(err)
		}
		down = append(down, time.Since(start))
	}
	slices.Sort(up)
	slices.Sort(down)
	rate := func(took []time.Duration) float64 {
		return benchPages * benchPage / float64(took[len(took)/2].Nanoseconds())
	}
	b.ReportMetric(rate(up), "up-GB/s")
	b.ReportMetric(rate(down), "down-GB/s")
}

// BenchmarkDemand pins single pages that lie in pinned memory, while others go up and down in the
// background: none, a set of 128, and two of them.
func BenchmarkDemand(b *testing.B) {
	for _, background := range []string{"none", "one set", "two sets"} {
		b.Run(background, func(b *testing.B) {
			const moving = 128
			p, _ := benchPager(b, pager.Options{NoPrefetch: true}, 3*moving, 4*moving, 3*moving)
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			var sets [2][]uint64
			for page := range uint64(2 * moving) {
				sets[page/moving] = append(sets[page/moving], page)
			}
			carry := func(set []uint64) {
				wg.Go(func() {
					for ctx.Err() == nil {
						if err := p.WillNeed(0, set...); err != nil {
							b.Error(err)
							return
						}
						if err := p.DoneWith(ctx, 0, set...); err != nil && ctx.Err() == nil {
							b.Error(err)
							return
						}
						<-time.After(100 * time.Microsecond) // a pause between sets
					}
				})
			}
			switch background {
			case "one set":
				carry(sets[0])
			case "two sets":
				carry(sets[0])
				carry(sets[1])
			}
			b.Cleanup(func() { cancel(); wg.Wait() })
			var took []time.Duration
			page := uint64(2 * moving)
			before := p.Stats().Memory[0]
			for b.Loop() {
				start := time.Now()
				h, err := p.Pin(ctx, page, 0, pager.ForReading)
				if err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(start))
				h.Unpin()
				if err := p.DoneWith(ctx, 0, page); err != nil {
					b.Fatal(err)
				}
				if page++; page == 3*moving {
					page = 2 * moving
				}
			}
			after := p.Stats().Memory[0]
			reportTimes(b, "", took)
			b.ReportMetric(float64(after.Prefetched-before.Prefetched)*benchPage/float64(b.Elapsed().Nanoseconds()),
				"background-up-GB/s")
			cancel()
			wg.Wait()
		})
	}
}

// BenchmarkDiskMiss pins single pages that lie on a disk, in EXOSWARM_BENCH_DIR, and reads pages of
// the same length from a plain file there, in turn.
func BenchmarkDiskMiss(b *testing.B) {
	dir, f := tierstest.Disk(b, "exoswarm-bench-miss", benchPages*benchPage)
	store, err := pagestore.Open(pagestore.Options{
		PageSize: benchPage, Tiers: []pagestore.Tier{{
			Dir: filepath.Join(dir, "tier"), Capacity: 4 << 30,
			SegmentBytes: 256 << 20,
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	}()
	ctx := context.Background()
	page := vfs.Buffer(benchPage)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range page {
		page[i] = byte(rng.Uint32())
	}
	for id := range uint64(benchPages) {
		_, err := f.WriteAt(page, int64(id)*benchPage)
		if err := errors.Join(err, store.Put(ctx, 0, id, page, pagestore.Kind{})); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := store.Commit(ctx, nil); err != nil {
		b.Fatal(err)
	}
	b.Run("2MiB", func(b *testing.B) {
		p, gpu := benchPager(b, pager.Options{Store: store, NoPrefetch: true}, 32, 32, 0)
		var raw, pin []time.Duration
		got := make([]byte, benchPage)
		for b.Loop() {
			start := time.Now()
			if _, err := f.ReadAt(page, rng.Int64N(benchPages)*benchPage); err != nil {
				b.Fatal(err)
			}
			raw = append(raw, time.Since(start))
			id := rng.Uint64N(benchPages)
			start = time.Now()
			h, err := p.Pin(ctx, id, 0, pager.ForReading)
			if err != nil {
				b.Fatal(err)
			}
			pin = append(pin, time.Since(start))
			if len(pin)%64 == 1 {
				if err := gpu.Read(h.Frame(), 0, got); err != nil || !bytes.Equal(got, page) {
					b.Fatalf("page %d has other bytes: %v", id, err)
				}
			}
			h.Unpin()
			for tier := range 2 { // Down to the disk again, which has it: nothing is copied from the second tier.
				if err := p.DoneWith(ctx, tier, id); err != nil {
					b.Fatal(err)
				}
			}
		}
		reportTimes(b, "disk-", raw)
		reportTimes(b, "pin-", pin)
	})
}
