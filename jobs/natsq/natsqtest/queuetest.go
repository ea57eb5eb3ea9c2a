package natsqtest

import (
	"testing"

	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// Queue starts a server in this process and returns a connection to it. Both are closed with the
// test.
func Queue(t testing.TB) *natsq.Conn {
	t.Helper()
	conn, _ := QueueAndServer(t)
	return conn
}

// QueueAndServer is Queue, and returns the server too.
func QueueAndServer(t testing.TB) (*natsq.Conn, *server.Server) {
	t.Helper()
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatalf("start a NATS server: %v", err)
	}
	t.Cleanup(srv.Close)
	conn, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: "test"})
	if err != nil {
		t.Fatalf("connect to the NATS server: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn, srv
}
