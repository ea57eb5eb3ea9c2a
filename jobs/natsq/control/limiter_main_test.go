package control

import (
	"testing"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// connectLimiter starts a server without a port, and connects to it.
func connectLimiter(t testing.TB) *natsconn.Conn {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	c, err := natsconn.Open(t.Context(), natsconn.Options{InProcess: s, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
