package swarmlog

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Last implements swarms.Log.
func (l *Log) Last(ctx context.Context) (swarms.Entry, error) {
	e, _, err := l.end(ctx)
	return e, err
}

// end is Last with the writer of the entry. It asks the leader. The client's own call would ask any
// replica if the stream allows that, as the streams of earlier versions do.
func (l *Log) end(ctx context.Context) (e swarms.Entry, writer string, err error) {
	what := "read the end of " + l.stream
	err = l.conn.Retry(ctx, what, func(ctx context.Context) error {
		e, writer = swarms.Entry{}, ""
		m, err := l.conn.LastOnce(ctx, l.stream, l.subject)
		if errors.Is(err, jobs.ErrNotFound) { // it is empty, or all entries are trimmed
			return nil
		}
		if err != nil {
			return err
		}
		e, err = entry(m.Seq, m.Header, m.Data)
		writer = m.Header.Get(headerWriter)
		return err
	})
	if api := (*jetstream.APIError)(nil); errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamNotFound {
		err = fmt.Errorf("%s: %w", what, jobs.ErrNotFound)
	}
	return e, writer, err
}

// entry decodes a stored entry, which any client with the permission may have written.
func entry(seq uint64, h nats.Header, data []byte) (swarms.Entry, error) {
	ref, err := strconv.ParseUint(h.Get(headerRef), 10, 64)
	if err != nil {
		return swarms.Entry{}, jobs.Errorf(jobs.CodeInvalid, "log entry %d: header %s is %q, not a number", seq,
			headerRef, h.Get(headerRef))
	}
	return swarms.Entry{
		Seq: seq, Kind: h.Get(headerKind), Ref: ref, Data: data, Note: h.Get(headerNote), Trace: natsconn.TraceOf(h),
	}, nil
}

// Reader is a swarms.Reader over a consumer that the server removes when it is not read. It does
// not use the client's ordered consumer, which tries for ever to make a new one when its stream is
// deleted, and does not end with a context.
type Reader struct {
	log  *Log
	it   jetstream.MessagesContext // nil if the consumer must be made
	name string                    // of the consumer
	next uint64                    // number of the next entry
	last uint64                    // digest of the entry before next; 0 before the first entry
	late bool                      // at the last call of look the leader had entry next
}

// A reader without an entry for readerIdle asks the leader for the end of the log. If an entry is
// there and does not come within readerLate, the consumer is on a server whose replica does not
// follow, although its heartbeats continue. The reader then makes another consumer, which may be on
// another server.
const (
	readerIdle = 5 * time.Second
	readerLate = 2 * time.Second
)

// Read implements swarms.Log.
func (l *Log) Read(ctx context.Context, from uint64) (swarms.Reader, error) {
	r := &Reader{log: l, next: from}
	if err := r.open(ctx); err != nil {
		return nil, err
	}
	return r, nil
}

func (r *Reader) open(ctx context.Context) error {
	l := r.log
	began := time.Now()
	err := l.conn.Retry(ctx, "read "+l.stream, func(ctx context.Context) error {
		if err := r.check(ctx, began); err != nil {
			return err
		}
		c, err := l.conn.JS.CreateConsumer(ctx, l.stream, jetstream.ConsumerConfig{
			AckPolicy:         jetstream.AckNonePolicy,
			DeliverPolicy:     jetstream.DeliverByStartSequencePolicy,
			OptStartSeq:       r.next,
			MemoryStorage:     true,
			Replicas:          1,
			InactiveThreshold: time.Minute,
		})
		if err != nil {
			return err
		}
		// 32 messages of less than 1 MiB each bound the memory of a slow reader. Without a
		// heartbeat for two seconds the consumer or the server is gone.
		r.it, err = c.Messages(jetstream.PullMaxMessages(32), jetstream.PullExpiry(20*time.Second),
			jetstream.PullHeartbeat(time.Second))
		r.name = c.CachedInfo().Name
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("read %s: %w", l.stream, jobs.ErrNotFound)
	}
	return err
}

// check fails with jobs.ErrFenced if the log has another entry, or none, in the place of the last
// one that was read: it was restored to an earlier state since, for example from a backup. The next
// entry would not follow the entries that were read.
func (r *Reader) check(ctx context.Context, began time.Time) error {
	if r.last == 0 {
		return nil
	}
	l := r.log
	m, err := l.conn.GetOnce(ctx, l.stream, map[string]any{"seq": r.next - 1})
	if err == nil {
		if digest(m.Header, m.Data) != r.last {
			return fmt.Errorf("read %s: entry %d is not the one that was read: the log was put back to an earlier "+
				"state: %w", l.stream, r.next-1, jobs.ErrFenced)
		}
		return nil
	}
	if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	end, _, err := l.end(ctx)
	switch {
	case err != nil:
		return err
	case end.Seq >= r.next: // the entries before next were trimmed
		return nil
	case time.Since(began) < shortPatience:
		return fmt.Errorf("%w: %w", nats.ErrTimeout, errShort{r.next - 1, end.Seq})
	}
	return fmt.Errorf("read %s: %w: the log was put back to an earlier state: %w", l.stream,
		errShort{r.next - 1, end.Seq}, jobs.ErrFenced)
}

// digestSeed is random, because only this process compares digests.
var digestSeed = maphash.MakeSeed()

// digest tells a stored entry from another one with the same number. It is never 0.
func digest(h nats.Header, data []byte) uint64 {
	var d maphash.Hash
	d.SetSeed(digestSeed)
	for _, name := range []string{headerKind, headerRef, headerWriter} {
		_, _ = d.WriteString(h.Get(name)) // which never fails
		_ = d.WriteByte('\n')
	}
	_, _ = d.Write(data)
	return max(1, d.Sum64())
}

// look asks the leader for the end of the log, and closes the consumer if two calls in a row find
// entry next. Next then makes another consumer.
func (r *Reader) look(ctx context.Context) {
	l := r.log
	try, cancel := context.WithTimeout(ctx, natsconn.LongTry)
	defer cancel()
	m, err := l.conn.LastOnce(try, l.stream, l.subject)
	switch {
	case err != nil: // missing heartbeats or the next call of look find a server that is gone
	case m.Seq < r.next:
		r.late = false
	case r.late:
		r.Close()
	default:
		r.late = true
	}
}

// Next implements swarms.Reader.
func (r *Reader) Next(ctx context.Context) (swarms.Entry, error) {
	for {
		if ctx.Err() != nil {
			return swarms.Entry{}, context.Cause(ctx)
		}
		if r.it == nil {
			if err := r.open(ctx); err != nil {
				return swarms.Entry{}, err
			}
		}
		wait := readerIdle
		if r.late {
			wait = readerLate
		}
		try, cancel := context.WithTimeout(ctx, wait)
		m, err := r.it.Next(jetstream.NextContext(try))
		cancel()
		switch {
		case err == nil:
			r.late = false
		case ctx.Err() != nil:
			continue
		case errors.Is(err, context.DeadlineExceeded):
			r.look(ctx)
			continue
		default: // the consumer or the stream is gone, or the connection was lost
			r.Close()
			continue
		}
		meta, err := m.Metadata()
		if err != nil {
			return swarms.Entry{}, fmt.Errorf("read %s at %d: %w", r.log.stream, r.next, err)
		}
		switch seq := meta.Sequence.Stream; {
		case seq < r.next:
			continue
		case seq > r.next && meta.Sequence.Consumer == 1:
			return swarms.Entry{}, fmt.Errorf("read %s: %w", r.log.stream,
				&swarms.TrimmedError{Wanted: r.next, First: seq})
		case seq > r.next: // a delivery was lost
			r.Close()
			continue
		}
		r.next++
		r.last = digest(m.Headers(), m.Data())
		e, err := entry(r.next-1, m.Headers(), m.Data())
		e.Behind, e.Time = meta.NumPending, meta.Timestamp
		return e, err
	}
}

// Close ends the reading. A second call does nothing. It asks the server to remove the consumer and
// does not wait for that: one that is lost goes by itself after a minute. A server allows a stream
// a thousand consumers, which a client that asks a swarm some twenty times a second would reach
// before.
func (r *Reader) Close() {
	if r.it == nil {
		return
	}
	r.it.Stop()
	r.it = nil
	_ = r.log.conn.NC.Publish("$JS.API.CONSUMER.DELETE."+r.log.stream+"."+r.name, nil)
}
