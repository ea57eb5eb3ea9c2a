package natsconn_test

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestSpread: consecutive parts of a key have different connections, in turn, which have the writer
// of the first one and are closed with it. A part has the same one in each call.
func TestSpread(t *testing.T) {
	t.Parallel()
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatalf("server.Start: %v", err)
	}
	defer srv.Close()
	c, err := natsconn.Open(t.Context(), natsconn.Options{URL: srv.URL(), Name: "spread", Siblings: 2})
	if err != nil {
		t.Fatalf("natsconn.Open: %v", err)
	}
	defer c.Close()
	all := map[*natsconn.Conn]bool{}
	for i := range 6 {
		s := c.Spread("x", i)
		if s != c.Spread("x", i) || i >= 3 && s != c.Spread("x", i-3) {
			t.Errorf("part %d has several connections", i)
		}
		if s.Writer != c.Writer || !s.NC.IsConnected() {
			t.Errorf("part %d: writer %q, want %q; connected: %v", i, s.Writer, c.Writer, s.NC.IsConnected())
		}
		if _, err := s.JS.AccountInfo(t.Context()); err != nil {
			t.Errorf("part %d: JS.AccountInfo: %v", i, err)
		}
		all[s] = true
	}
	if len(all) != 3 {
		t.Errorf("%d connections, want 3", len(all))
	}
	c.Close()
	for s := range all {
		if !s.NC.IsClosed() {
			t.Error("a connection is open after Close")
		}
	}
}

// TestSpreadDenied: a server that takes no further connection leaves the first one to all logs.
func TestSpreadDenied(t *testing.T) {
	t.Parallel()
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Fast: true})
	if err != nil {
		t.Fatalf("server.Start: %v", err)
	}
	defer srv.Close()
	var log bytes.Buffer
	c, err := natsconn.Open(t.Context(), natsconn.Options{
		URL: firstOnly(t, strings.TrimPrefix(srv.URL(), "nats://")), Name: "spread", Siblings: 2,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatalf("natsconn.Open: %v", err)
	}
	defer c.Close()
	for i := range 3 {
		if c.Spread("x", i) != c {
			t.Errorf("part %d has another connection", i)
		}
	}
	if !strings.Contains(log.String(), "takes no further connection") {
		t.Errorf("the log is %q", log.String())
	}
}

// firstOnly returns the URL of a listener that passes its first connection to an address and closes
// all later ones.
func firstOnly(t *testing.T, to string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("net.Listen: %v", err)
	}
	var copies sync.WaitGroup
	copies.Go(func() {
		for first := true; ; first = false {
			from, err := l.Accept()
			if err != nil {
				return
			}
			if !first {
				_ = from.Close()
				continue
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				t.Errorf("net.Dial: %v", err)
				_ = from.Close()
				continue
			}
			copies.Go(func() { _, _ = io.Copy(server, from); _ = server.Close() })
			copies.Go(func() { _, _ = io.Copy(from, server); _ = from.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); copies.Wait() })
	return "nats://" + l.Addr().String()
}
