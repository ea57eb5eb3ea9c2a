package objects

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// The client of the object store sends up to 4,000 chunks, 500 MB, before the first is stored. A
// server refuses what comes while 128 MiB wait for the disk of a stream, so an object that is read
// faster than the disk writes was refused. A pacedReader keeps the client from that.

// aheadBytes is how much of an object is sent before the server has stored what came before it.
// Fifteen objects at the same time stay below the bound of the server.
const aheadBytes = 8 << 20

// pacedReader calls ready before it reads on after each aheadBytes. It is not safe for several
// goroutines.
type pacedReader struct {
	from  io.Reader
	ready func() error
	sent  int
}

// Read implements io.Reader. It fails with the error of ready.
func (p *pacedReader) Read(b []byte) (int, error) {
	if p.sent >= aheadBytes {
		if err := p.ready(); err != nil {
			return 0, err
		}
		p.sent = 0
	}
	n, err := p.from.Read(b)
	p.sent += n
	return n, err
}

// stored waits until the server has processed every chunk that this connection has sent. It sends a
// message for the same stream on a condition that is false: the server takes it after those before
// it, answers with an error, and stores nothing.
func (st *Store) stored(ctx context.Context) error {
	m := nats.NewMsg("$O." + wire.ObjectBucket + ".C.none")
	m.Header.Set(jetstream.ExpectedStreamHeader, "none")
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		_, err := st.conn.JS.PublishMsg(ctx, m)
		var api *jetstream.APIError
		switch {
		case err == nil:
			return errors.New("the server has stored a message whose condition is false")
		case !errors.As(err, &api):
			return err
		case api.ErrorCode != natsconn.ErrCodeTooFast:
			return nil
		}
		select { // others fill the stream
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
