package bulk

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// BenchmarkLoopback fetches payloads of 16 MiB from a server of this process over loopback, with
// checksums, into memory that is used again. The folder is that of the variable BULK_DIR, or one in
// memory; payloads are in the page cache. cores is the processor time of both sides in a second.
func BenchmarkLoopback(b *testing.B) {
	for _, c := range []struct{ payloads, streams int }{{1, 1}, {1, 4}, {1, 8}, {4, 1}, {4, 4}, {8, 1}, {8, 4}} {
		b.Run(fmt.Sprintf("payloads=%d/streams=%d", c.payloads, c.streams), func(b *testing.B) {
			benchmarkLoopback(b, c.payloads, c.streams)
		})
	}
}

func benchmarkLoopback(b *testing.B, payloads, streams int) {
	s, all := benchmarkSpool(b, payloads)
	srv := serve(b, s, nil)
	f := aFetcher(b, FetcherOptions{Streams: streams})
	into := make([][]byte, payloads)
	for i := range all {
		all[i].Place = srv.o.Place.Address
		into[i] = make([]byte, all[i].Bytes)
		if err := f.Fetch(b.Context(), all[i], into[i]); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(payloads * swarms.MaxBulk))
	used := processTime(b)
	began := time.Now()
	for b.Loop() {
		var ended sync.WaitGroup
		for i := range all {
			ended.Go(func() {
				if err := f.Fetch(b.Context(), all[i], into[i]); err != nil {
					b.Error(err)
				}
			})
		}
		ended.Wait()
	}
	b.ReportMetric(float64(processTime(b)-used)/float64(time.Since(began)), "cores")
	b.ReportMetric(float64(runtime.GOMAXPROCS(0)), "gomaxprocs")
}

// benchmarkSpool returns a spool with payloads of random bytes.
func benchmarkSpool(b *testing.B, n int) (*Spool, []swarms.Bulk) {
	b.Helper()
	dir := os.Getenv("BULK_DIR")
	if dir == "" {
		dir = b.TempDir()
	} else {
		var err error
		if dir, err = os.MkdirTemp(dir, "bulk"); err != nil { //nolint:usetesting // on the disk of the variable
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	s, err := OpenSpool(SpoolOptions{Dir: dir, FS: vfs.OS{}, LeastFree: 1})
	if err != nil {
		b.Fatal(err)
	}
	if err := s.setPlace(Place{Address: "127.0.0.1:1"}); err != nil {
		b.Fatal(err)
	}
	var all []swarms.Bulk
	for i := range n {
		all = append(all, put(b, s, random(swarms.MaxBulk, uint64(i))))
	}
	return s, all
}

// BenchmarkPut spools payloads of 16 MiB, synced.
func BenchmarkPut(b *testing.B) {
	s, _ := benchmarkSpool(b, 0)
	data := random(swarms.MaxBulk, 1)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		if err := s.Remove(put(b, s, data)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSum is the checksum alone, on one core.
func BenchmarkSum(b *testing.B) {
	data := random(swarms.BulkChunk, 1)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		swarms.BulkSum(data)
	}
}

// processTime returns the processor time of this process.
func processTime(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
