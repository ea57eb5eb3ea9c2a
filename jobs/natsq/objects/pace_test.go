package objects_test

import (
	"bytes"
	"io"
	"testing"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// TestPutFasterThanDisk: an object that is read faster than the server stores it is stored, also on
// a server where less may wait for the disk than the client would send ahead.
func TestPutFasterThanDisk(t *testing.T) {
	t.Parallel()
	s, err := natsd.NewServer(&natsd.Options{
		Host: "127.0.0.1", Port: natsd.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
		JetStreamMaxStore: 1 << 50, JetStreamMaxMemory: 1 << 30, MaxPayload: server.MaxPayload,
		StreamMaxBufferedSize: 10 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	c, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.ClientURL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	// A pipe cannot be read again, so every chunk must be stored the first time.
	n, err := c.Objects.PutObject(t.Context(), "o", jobs.Owner{}, struct{ io.Reader }{bytes.NewReader(data)})
	if err != nil || n != int64(len(data)) {
		t.Fatalf("%d bytes, %v, want %d", n, err, len(data))
	}
	o, err := c.Objects.Object(t.Context(), "o", jobs.Owner{})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(o); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read back %d bytes, %v", len(got), err)
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
}
