package natsconn

import (
	"context"
	"fmt"
	"hash/crc32"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// openSiblings opens Options.Siblings further connections, which share the writer and the metrics
// of c. If the server takes fewer connections, c has only these.
func openSiblings(ctx context.Context, c *Conn, o Options) {
	name := o.Name
	for i := range o.Siblings {
		o.Name = fmt.Sprintf("%s logs %d", name, i+1)
		s, _, err := dialed(ctx, o)
		if err == nil {
			if s.JS, err = newJetStream(s.NC); err != nil {
				s.NC.Close()
			}
		}
		if err != nil {
			if o.Logger != nil {
				o.Logger.Warn("the NATS server takes no further connection: logs share the present connections",
					"connections", i+1, "error", err)
			}
			return
		}
		s.Writer, s.requests, s.elected = c.Writer, c.requests, c.elected
		c.siblings = append(c.siblings, s)
	}
}

func newJetStream(nc *nats.Conn) (jetstream.JetStream, error) {
	return jetstream.New(nc, jetstream.WithDefaultTimeout(apiTimeout), jetstream.WithPublishAsyncTimeout(2*LongTry))
}

// Spread returns one of c and its siblings for part i of key, the same one in each call.
// Consecutive parts have different ones. A server reads and writes a connection with one goroutine
// each, so several connections carry more bytes than one. The result is valid until c is closed.
func (c *Conn) Spread(key string, i int) *Conn {
	n := uint32(len(c.siblings) + 1)
	if at := (crc32.ChecksumIEEE([]byte(key))%n + uint32(i)) % n; at > 0 {
		return c.siblings[at-1]
	}
	return c
}
