package bulk

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/leak"
	"github.com/exoswarm/exoswarm/internal/tempdir"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

func TestMain(m *testing.M) {
	tempdir.InMemory()
	leak.Check(m)
}

// random returns n random bytes.
func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // which never fails
	return b
}

// aSpool opens a spool in memory, or in fs, that has a place already.
func aSpool(tb testing.TB, fs vfs.FS) *Spool {
	tb.Helper()
	if fs == nil {
		fs = vfs.NewMem(0)
	}
	s, err := OpenSpool(SpoolOptions{Dir: "/spool", FS: fs, LeastFree: 1, Wait: time.Millisecond})
	if err != nil {
		tb.Fatal(err)
	}
	if err := s.setPlace(Place{Address: "127.0.0.1:1"}); err != nil {
		tb.Fatal(err)
	}
	return s
}

// put puts data into a spool.
func put(tb testing.TB, s *Spool, data []byte) swarms.Bulk {
	tb.Helper()
	b, err := s.Put(tb.Context(), "sw=abcdefgh", 3, data)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// serve serves a spool on a free port until the test ends. change may change the options.
func serve(tb testing.TB, s *Spool, change func(*ServerOptions)) *Server {
	tb.Helper()
	l, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	o := ServerOptions{
		Spool: s, Listener: l, Place: Place{Address: l.Addr().String()}, Logger: slog.New(slog.DiscardHandler),
	}
	if change != nil {
		change(&o)
	}
	srv, err := Serve(o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := srv.Close(); err != nil {
			tb.Error(err)
		}
	})
	return srv
}

// aFetcher returns a fetcher that is closed when the test ends.
func aFetcher(tb testing.TB, o FetcherOptions) *Fetcher {
	tb.Helper()
	f := NewFetcher(o)
	tb.Cleanup(f.Close)
	return f
}

// fetch fetches a payload within 20 s.
func fetch(tb testing.TB, f *Fetcher, b swarms.Bulk) ([]byte, error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
	defer cancel()
	data := make([]byte, b.Bytes)
	return data, f.Fetch(ctx, b, data)
}
