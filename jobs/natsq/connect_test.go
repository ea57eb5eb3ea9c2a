package natsq_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// deafProxy forwards connections to the server at url, and drops the first n requests of clients on
// a subject. A server of a cluster that has no leader yet drops requests in this way.
func deafProxy(t *testing.T, url, subject string, n int) (proxied string, dropped *atomic.Int64) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	dropped = &atomic.Int64{}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			upstream, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "nats://"))
			if err != nil {
				_ = client.Close()
				continue
			}
			go func() {
				_, _ = io.Copy(client, upstream)
				_ = client.Close()
			}()
			go func() {
				defer upstream.Close()
				lines := bufio.NewReader(client)
				for {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					if strings.HasPrefix(line, "PUB "+subject+" ") && dropped.Load() < int64(n) {
						dropped.Add(1)
						if _, err := lines.ReadString('\n'); err != nil { // the empty payload
							return
						}
						continue
					}
					if _, err := io.WriteString(upstream, line); err != nil {
						return
					}
				}
			}()
		}
	}()
	return "nats://" + l.Addr().String(), dropped
}

// TestConnectUnanswered: a server that drops the first request delays Connect by the time of one
// try, not until the deadline of the caller, which may be an hour away.
func TestConnectUnanswered(t *testing.T) {
	t.Parallel()
	s := jobstest.Start(t, server.Options{})
	url, dropped := deafProxy(t, s.URL(), "$JS.API.INFO", 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	connected := make(chan error, 1)
	go func() {
		c, err := natsq.Connect(ctx, natsconn.Options{URL: url})
		if err == nil {
			c.Close()
		}
		connected <- err
	}()
	select {
	case err := <-connected:
		if err != nil || dropped.Load() != 1 {
			t.Errorf("connect: %v, %d requests dropped, want 1", err, dropped.Load())
		}
	case <-time.After(2 * time.Minute):
		t.Error("connect waits for the answer to a request that the server dropped")
		cancel()
		<-connected
	}
}
