package pagestore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Benchmarks of a disk run in one go, so that the disk's own rate and the store's are measured on
// the same disk in the same minute:
//
//	EXOSWARM_BENCH_DIR=/disk go test ./tiers/pagestore -run '^$' -bench Disk -benchtime 500x
//
// raw-write and raw-read are what dd with O_DIRECT does: one 2 MiB transfer after the other on a
// file that is allocated, with one sync at the end of the writes. put and get are one call after
// the other, likewise one request in flight, of a page and a block of header. The rows of
// depth 3 are the raw loop from three goroutines. What is put ends with a commit.
const benchPage = 2 << 20

// benchPages is the number of pages of a benchmark: 1 GiB.
const benchPages = 512

func BenchmarkDisk(b *testing.B) {
	dir, f := tierstest.Disk(b, "exoswarm-bench", benchPages*benchPage)
	page := vfs.Buffer(benchPage)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; i < len(page); i += 8 {
		binary.LittleEndian.PutUint64(page[i:], rng.Uint64())
	}
	s, err := pagestore.Open(pagestore.Options{
		PageSize: benchPage, Tiers: []pagestore.Tier{{
			Dir: filepath.Join(dir, "tier"), Capacity: 4 << 30,
			SegmentBytes: 256 << 20,
		}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ctx := context.Background()
	for range 2 { // The first round also touches every block that is fresh.
		for id := range uint64(benchPages) {
			if _, err := f.WriteAt(page, int64(id)*benchPage); err != nil {
				b.Fatal(err)
			}
			if err := s.Put(ctx, 0, id, page, pagestore.Kind{}); err != nil {
				b.Fatal(err)
			}
		}
		if _, err := s.Commit(ctx, nil); err != nil {
			b.Fatal(err)
		}
	}
	run := func(name string, all func(n int) error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchPage)
			b.ReportAllocs()
			if err := all(b.N); err != nil {
				b.Fatal(err)
			}
		})
	}
	// each calls one for every page, from as many goroutines as there are to be requests in flight.
	each := func(depth int, one func(id uint64, buf []byte) error, end func() error) func(n int) error {
		return func(n int) error {
			var wg sync.WaitGroup
			errs := make([]error, depth+1)
			for w := range depth {
				wg.Go(func() {
					buf := vfs.Buffer(benchPage)
					for i := w; i < n && errs[w] == nil; i += depth {
						errs[w] = one(uint64(i%benchPages), buf)
					}
				})
			}
			wg.Wait()
			errs[depth] = end()
			return errors.Join(errs...)
		}
	}
	none := func() error { return nil }
	commit := func() error { _, err := s.Commit(ctx, nil); return err }
	rawWrite := func(id uint64, _ []byte) error { _, err := f.WriteAt(page, int64(id)*benchPage); return err }
	rawRead := func(id uint64, buf []byte) error { _, err := f.ReadAt(buf, int64(id)*benchPage); return err }
	put := func(id uint64, _ []byte) error { return s.Put(ctx, 0, id, page, pagestore.Kind{}) }
	run("raw-write", each(1, rawWrite, f.Sync))
	run("raw-write-depth-3", each(3, rawWrite, f.Sync))
	run("put", each(1, put, commit))
	run("put-3-callers", each(3, put, commit))
	run("raw-read", each(1, rawRead, none))
	run("raw-read-depth-3", each(3, rawRead, none))
	run("get", each(1, func(id uint64, buf []byte) error { return s.Get(ctx, id, buf) }, none))
}
