package pagestore_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// Benchmarks of a disk run in one go, so that the disk's own rate and the store's are measured on the same disk in the
// same minute:
//
//	EXOSWARM_BENCH_DIR=/disk go test ./tiers/pagestore -run '^$' -bench Disk -benchtime 500x
//
// raw-write and raw-read are what dd with O_DIRECT does: one 2 MiB transfer after the other on a file that is allocated.
const benchPage = 2 << 20

// benchPages is how many pages a benchmark goes over: 1 GiB.
const benchPages = 512

func BenchmarkDisk(b *testing.B) {
	dir := os.Getenv("EXOSWARM_BENCH_DIR")
	if dir == "" {
		dir = b.TempDir()
	} else {
		dir = filepath.Join(dir, "exoswarm-bench")
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	fs := vfs.OS{}
	if err := fs.MkdirAll(dir); err != nil {
		b.Fatal(err)
	}
	f, err := fs.Open(filepath.Join(dir, "raw"), vfs.Create|vfs.Direct)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	if err := f.Allocate(benchPages * benchPage); err != nil {
		b.Fatal(err)
	}
	page := vfs.Buffer(benchPage)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := 0; i < len(page); i += 8 {
		binary.LittleEndian.PutUint64(page[i:], rng.Uint64())
	}
	s, err := pagestore.Open(pagestore.Options{
		PageSize: benchPage, Tiers: []pagestore.Tier{{Dir: filepath.Join(dir, "tier"), Capacity: 4 << 30, SegmentBytes: 256 << 20}},
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
	run := func(name string, workers int, one func(id uint64, buf []byte) error, end func() error) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(benchPage)
			b.ReportAllocs()
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					buf := vfs.Buffer(benchPage)
					for i := w; i < b.N; i += workers {
						if err := one(uint64(i%benchPages), buf); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			if err := end(); err != nil {
				b.Fatal(err)
			}
		})
	}
	none := func() error { return nil }
	commit := func() error { _, err := s.Commit(ctx, nil); return err }
	run("raw-write", 1, func(id uint64, _ []byte) error { _, err := f.WriteAt(page, int64(id)*benchPage); return err }, f.Sync)
	run("checkpoint", 1, func(id uint64, _ []byte) error { return s.Put(ctx, 0, id, page, pagestore.Kind{}) }, commit)
	run("checkpoint-2-workers", 2, func(id uint64, _ []byte) error { return s.Put(ctx, 0, id, page, pagestore.Kind{}) }, commit)
	run("raw-read", 1, func(id uint64, buf []byte) error { _, err := f.ReadAt(buf, int64(id)*benchPage); return err }, none)
	run("get", 1, func(id uint64, buf []byte) error { return s.Get(ctx, id, buf) }, none)
	run("get-2-workers", 2, func(id uint64, buf []byte) error { return s.Get(ctx, id, buf) }, none)
}
