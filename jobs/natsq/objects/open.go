package objects

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// Object opens an object of the owner. The reader checks the digest at the end, and returns an
// error instead of io.EOF for a damaged object. It fails with jobs.ErrNotFound if there is surely
// no such object, see natsconn.Conn.Sure. ctx bounds the reading too. The caller closes the reader.
func (st *Store) Object(ctx context.Context, name string, of jobs.Owner) (io.ReadCloser, error) {
	return st.OpenNamed(ctx, of.Named(name))
}

// OpenNamed is Object with the name that the store uses.
func (st *Store) OpenNamed(ctx context.Context, name string) (io.ReadCloser, error) {
	info, _, err := st.describe(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("open object %s: %w", name, err)
	}
	digest, err := jetstream.DecodeObjectDigest(info.Digest)
	if err != nil {
		return nil, fmt.Errorf("open object %s: its digest: %w", name, err)
	}
	r := &reader{
		//nolint:contextcheck // of the caller, who closes the reader
		ctx: ctx, conn: st.conn, name: name, subject: objectChunks + info.NUID, left: info.Size, want: digest,
		digest: sha256.New(),
	}
	if info.Size > consumedSize {
		r.consume()
	}
	return r, nil
}

// describe returns the description of an object as the leader of the store has it, and its message.
// It fails with jobs.ErrNotFound if there is surely no such object. The client's own calls ask any
// replica, also one that lags behind.
func (st *Store) describe(ctx context.Context, name string) (info jetstream.ObjectInfo, m *natsconn.Message,
	err error,
) {
	err = st.conn.Sure(ctx, objectStream, func() error {
		if m, err = st.conn.Last(ctx, objectStream, metaSubject(name)); err != nil {
			return err
		}
		info = jetstream.ObjectInfo{}
		if err := json.Unmarshal(m.Data, &info); err != nil {
			return fmt.Errorf("its description: %w", err)
		}
		if info.Deleted {
			return jobs.ErrNotFound
		}
		return nil
	})
	return info, m, err
}

const (
	// consumedSize is the size from which on a consumer carries an object. A question to the leader
	// carries a chunk of 128 KiB as text.
	consumedSize = 512 << 10
	// consumedAhead bounds the bytes that a consumer sends before they are read.
	consumedAhead = 4 << 20
	// consumedWait is how long the next chunk is waited for. The consumer is on any server: when the
	// replica there lags behind, or its server is away, the leader is asked for the rest.
	consumedWait = 2 * time.Second
)

type reader struct {
	ctx     context.Context //nolint:containedctx // an io.Reader has no other
	conn    *natsconn.Conn
	name    string
	subject string // of the chunks
	left    uint64 // bytes of the object that no chunk has brought yet
	seq     uint64 // of the last chunk
	rest    []byte // of the last chunk
	digest  hash.Hash
	want    []byte
	ahead   jetstream.MessagesContext // nil: the leader is asked
	err     error
}

// consume makes a consumer of the chunks. Without one the leader is asked for each.
func (r *reader) consume() {
	ctx, cancel := context.WithTimeout(r.ctx, natsconn.ShortTry)
	defer cancel()
	c, err := r.conn.JS.OrderedConsumer(ctx, objectStream, jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{r.subject},
	})
	if err != nil {
		return
	}
	if ahead, err := c.Messages(jetstream.PullMaxBytes(consumedAhead)); err == nil {
		r.ahead = ahead
	}
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 && r.err == nil {
		r.err = r.next()
	}
	if len(r.rest) == 0 {
		return 0, r.err
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next fetches the next chunk. At the end of the object it returns io.EOF.
func (r *reader) next() error {
	if r.left == 0 {
		if got := r.digest.Sum(nil); !bytes.Equal(got, r.want) {
			return fmt.Errorf("object %s is damaged: its digest differs from its description", r.name)
		}
		return io.EOF
	}
	data, err := r.chunk()
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return fmt.Errorf("object %s: it was removed or replaced while it was read", r.name)
	case err != nil:
		return fmt.Errorf("read object %s: %w", r.name, err)
	case uint64(len(data)) > r.left:
		return fmt.Errorf("object %s is damaged: it has more bytes than its description says", r.name)
	}
	r.left -= uint64(len(data))
	r.digest.Write(data)
	r.rest = data
	return nil
}

// chunk returns the next chunk from the consumer, or from the leader.
func (r *reader) chunk() ([]byte, error) {
	if r.ahead != nil {
		wait, cancel := context.WithTimeout(r.ctx, consumedWait)
		m, err := r.ahead.Next(jetstream.NextContext(wait))
		cancel()
		if err == nil {
			at, err := m.Metadata()
			if err != nil {
				return nil, err
			}
			r.seq = at.Sequence.Stream
			return m.Data(), nil
		}
		r.ahead.Stop()
		r.ahead = nil
	}
	var m *natsconn.Message
	err := r.conn.Sure(r.ctx, objectStream, func() (err error) {
		m, err = r.conn.Next(r.ctx, objectStream, r.subject, r.seq+1)
		return err
	})
	if err != nil {
		return nil, err
	}
	r.seq = m.Seq
	return m.Data, nil
}

// Close implements io.Closer.
func (r *reader) Close() error {
	if r.ahead != nil {
		r.ahead.Stop()
		r.ahead = nil
	}
	r.rest, r.err = nil, fmt.Errorf("object %s: %w", r.name, io.ErrClosedPipe)
	return nil
}
