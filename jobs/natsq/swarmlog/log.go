package swarmlog

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"

	"github.com/exoswarm/exoswarm/internal/telemetry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Headers of a log entry.
const (
	headerKind   = "Exo-Kind"
	headerRef    = "Exo-Ref"
	headerWriter = "Exo-Writer"
)

// Log is a swarms.Log: a stream with a single subject.
type Log struct {
	c       *Swarms
	stream  string
	subject string

	template string // the stream's name without what differs between swarms

	single atomic.Bool // it was made by a program before atomic batches
}

// logPrefix begins the names of the streams of logs.
const logPrefix = "EXO_LOG_"

// Log addresses a log of a shard. swarm is the key of its swarm, see swarms.Swarm.Key, so two swarms
// of one id have different logs. The log need not exist.
func (sw *Swarms) Log(swarm string, shard int, d swarms.Direction) swarms.Log {
	return &Log{
		c:       sw,
		stream:  fmt.Sprintf("%s%s_%d_%s", logPrefix, swarm, shard, d),
		subject: fmt.Sprintf("exo.log.%s.%d.%s", swarm, shard, d),

		template: logPrefix + "{swarm}_{shard}_" + string(d),
	}
}

// Create implements swarms.Log. A log that exists keeps what it was made with, but for the replicas.
func (l *Log) Create(ctx context.Context, of ...swarms.Consistency) error {
	var want swarms.Consistency
	if len(of) > 0 {
		want = of[0]
	}
	if err := want.Validate(); err != nil {
		return fmt.Errorf("create log %s: %w", l.stream, err)
	}
	replicas, persist, fast := cmp.Or(want.Replicas, l.c.conn.Replicas), jetstream.DefaultPersistMode,
		want.Durability == swarms.Fast
	if fast { // which no replicated stream can be, whatever others have
		replicas, persist = 1, jetstream.AsyncPersistMode
	}
	began := time.Now()
	return l.c.conn.Retry(ctx, "create log "+l.stream, func(ctx context.Context) error {
		_, err := l.c.conn.JS.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name:     l.stream,
			Subjects: []string{l.subject},
			Replicas: replicas,
			// The server syncs no acknowledgement of such a stream, and takes no atomic batches for
			// it.
			PersistMode: persist,
			Retention:   jetstream.LimitsPolicy,
			Discard:     jetstream.DiscardNew,
			// Who reads the end of a log decides by it, so no replica that lags behind may answer.
			AllowDirect: false,

			AllowAtomicPublish: !fast,
			RePublish:          l.wakes(),
		})
		if replicas > 1 && tooFewServers(err, time.Since(began)) {
			return jobs.Errorf(jobs.CodeInvalid, "%d replicas: the NATS server has not as many servers for streams "+
				"(%v): use fewer replicas, or add servers", replicas, err)
		}
		return err
	})
}

// errCodeNoCluster is what a server that is no cluster says of more replicas than one; a cluster
// with too few servers says errCodeNoPeers.
const errCodeNoCluster = 10074

// tooFewServers reports whether a stream was refused because it has more replicas than there are
// servers. A cluster says so for a moment while it has no leader too, and for as long as one of its
// servers is away: it then names the offline peer, and the stream can be made when that server is
// back.
func tooFewServers(err error, after time.Duration) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	return api.ErrorCode == errCodeNoCluster || api.ErrorCode == natsconn.ErrCodeNoPeers && after > shortPatience &&
		!strings.Contains(api.Description, offlinePeer)
}

// offlinePeer is what nats-server 2.15.2 adds to errCodeNoPeers when a server of the cluster is
// away.
const offlinePeer = "peer offline"

// wakes has the server republish the headers of every entry of an in-log, for agents that have
// parked its shard; see Wakes.
func (l *Log) wakes() *jetstream.RePublish {
	if !strings.HasSuffix(l.template, "_"+string(swarms.In)) {
		return nil
	}
	return &jetstream.RePublish{Source: l.subject, Destination: wakeSubject(l.subject), HeadersOnly: true}
}

// Delete removes the log and everything in it. A log that is not there is no error.
func (l *Log) Delete(ctx context.Context) error { return l.c.conn.DeleteStream(ctx, l.stream) }

// Append implements swarms.Log. What fences is JetStream's expected last sequence. Several entries
// are one atomic batch, or are sent one at a time: with the second under way before the first is
// stored, it would also stand right behind what another writer has stored meanwhile.
func (l *Log) Append(ctx context.Context, after uint64, entries ...swarms.Entry) error {
	for len(entries) > 0 {
		n, size := 1, len(entries[0].Data)
		for n < min(len(entries), appendMost) && size+len(entries[n].Data) <= appendBytes {
			size += len(entries[n].Data)
			n++
		}
		if err := l.append(ctx, after, entries[:n]); err != nil {
			return err
		}
		after += uint64(n)
		entries = entries[n:]
	}
	return nil
}

// The most of an atomic batch: what it costs is the same for 1 entry as for 64 (way.go), and a
// server of a cluster has it in memory until it is complete.
const (
	appendMost  = 256
	appendBytes = 8 << 20
)

func (l *Log) append(ctx context.Context, after uint64, entries []swarms.Entry) (err error) {
	msgs := make([]*nats.Msg, len(entries))
	for i, e := range entries {
		own := ctx
		if e.Trace.Parent != "" {
			own = telemetry.With(ctx, e.Trace)
		}
		own, span := l.c.conn.StartSend(own, "append", l.template)
		if span.IsRecording() {
			span.SetAttributes(attribute.String(natsconn.AttrDestination, l.stream),
				attribute.String(natsconn.AttrTemplate, l.template), attribute.String("exoswarm.log.kind", e.Kind),
				attribute.Int64("exoswarm.log.ref", int64(e.Ref)),
				attribute.Int(natsconn.AttrBodySize, len(e.Data)))
		}
		defer func() { natsconn.EndSpan(span, err) }()
		msgs[i] = &nats.Msg{Subject: l.subject, Data: e.Data, Header: nats.Header{
			headerKind:   {e.Kind},
			headerRef:    {strconv.FormatUint(e.Ref, 10)},
			headerWriter: {l.c.conn.Writer},
		}}
		l.c.conn.Inject(own, msgs[i])
	}
	what := fmt.Sprintf("append %s %d to %s", entries[0].Kind, entries[0].Ref, l.stream)
	if n := len(entries); n > 1 {
		what = fmt.Sprintf("append %d entries, to %s %d, to %s", n, entries[n-1].Kind, entries[n-1].Ref, l.stream)
	}
	done, began := 0, time.Now() // so many are known to be stored
	err = l.c.conn.Retry(ctx, what, func(ctx context.Context) error {
		for done < len(msgs) {
			n, err := l.publish(ctx, after+uint64(done), msgs[done:])
			done += n
			if err == nil {
				continue
			}
			var api *jetstream.APIError
			switch {
			case errors.Is(err, jetstream.ErrNoStreamResponse): // no stream, or no leader for the moment?
				if _, serr := l.c.conn.JS.Stream(ctx, l.stream); errors.Is(serr, jetstream.ErrStreamNotFound) {
					return serr
				}
				return err
			case errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
				api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
				// Either somebody else wrote, or an earlier try of this very call was stored and
				// its acknowledgement lost.
				n, err := l.stored(ctx, after, entries)
				if short := (errShort{}); errors.As(err, &short) {
					if time.Since(began) < shortPatience {
						return fmt.Errorf("%w: %w", nats.ErrTimeout, err)
					}
					return fmt.Errorf("%w: the log was put back to an earlier state: %w", err, jobs.ErrFenced)
				}
				if err != nil {
					return err
				}
				if n <= done { // the end that the server compares with is not the one that it tells
					return fmt.Errorf("%w: %w", nats.ErrTimeout, api)
				}
				done = n
			default:
				return err
			}
		}
		return nil
	})
	var api *jetstream.APIError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jobs.ErrFenced):
		return fmt.Errorf("%s %w", what, err)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("%s: %d bytes are more than the server takes: %w", what, len(entries[done].Data), err)
	case errors.Is(err, jetstream.ErrStreamNotFound), errors.As(err, &api) &&
		api.ErrorCode == jetstream.JSErrCodeStreamNotFound:
		return fmt.Errorf("%s: %w", what, jobs.ErrNotFound)
	case errors.As(err, &api) && !errors.Is(err, jobs.ErrUnavailable):
		// What is left are limits: no space, no memory, too many messages. They do not pass by
		// waiting.
		return fmt.Errorf("%s: the NATS server refuses (%w): free disk space or raise its limits", what, err)
	}
	return err
}

// What the server says of an atomic batch for a stream that was made without them, of one of which
// it has lost a message, and of more at a time than it keeps: natsconn.ErrCodeManyBatches.
const (
	errCodeNoBatches  = 10174
	errCodeIncomplete = 10176
)

// publish stores messages, the first right behind entry number after, and returns how many are
// known to be stored when one is not.
func (l *Log) publish(ctx context.Context, after uint64, msgs []*nats.Msg) (stored int, err error) {
	mode := &l.c.mode
	together := !l.single.Load() && mode.Atomic(len(msgs))
	began := time.Now()
	if together {
		natsconn.SetHeader(msgs[0], jetstream.ExpectedLastSeqHeader, strconv.FormatUint(after, 10))
		err := l.c.conn.PublishBatchOnce(ctx, msgs)
		var api *jetstream.APIError
		switch {
		case err == nil:
			mode.Observe(true, len(msgs), time.Since(began))
			return len(msgs), nil
		case !errors.As(err, &api):
			return 0, err
		case api.ErrorCode == errCodeIncomplete, api.ErrorCode == natsconn.ErrCodeManyBatches:
			return 0, fmt.Errorf("%w: %w", nats.ErrTimeout, err)
		case api.ErrorCode != errCodeNoBatches:
			return 0, err
		}
		l.single.Store(true)
	}
	for i, m := range msgs {
		if _, err := l.c.conn.JS.PublishMsg(ctx, m, jetstream.WithExpectLastSequence(after+uint64(i)),
			jetstream.WithRetryAttempts(0)); err != nil {
			return i, err
		}
	}
	mode.Observe(false, len(msgs), time.Since(began))
	return len(msgs), nil
}

// stored is how many of entries stand behind entry number after. An ErrFenced says that others do.
func (l *Log) stored(ctx context.Context, after uint64, entries []swarms.Entry) (int, error) {
	last, writer, err := l.end(ctx)
	if err != nil {
		return 0, err
	}
	n := last.Seq - after
	switch {
	case last.Seq == after:
		return 0, nil
	case last.Seq > after && n <= uint64(len(entries)) && writer == l.c.conn.Writer && last.Kind == entries[n-1].Kind &&
		last.Ref == entries[n-1].Ref && bytes.Equal(last.Data, entries[n-1].Data):
		return int(n), nil
	case last.Seq > after: // somebody else has written, behind all of them or in place of some
		found, err := l.found(ctx, after, entries)
		if err != nil || found == len(entries) {
			return found, err
		}
		return 0, fmt.Errorf("behind %d: the last entry is %d: %w", after, last.Seq, jobs.ErrFenced)
	}
	return 0, errShort{after, last.Seq}
}

// errShort says that a log ends before an entry that was stored in it. A leader that is cut off
// says so of a log that goes on elsewhere, and a new one until it has applied what is stored; a log
// that was put back to an earlier state stays so.
type errShort struct{ after, last uint64 }

func (e errShort) Error() string {
	return fmt.Sprintf("behind %d: the last entry is %d, which is before it", e.after, e.last)
}

// shortPatience is how long a log that is too short is asked again before it counts as put back to
// an earlier state. A leader that is cut off gives up after 4 to 9 s.
const shortPatience = 10 * time.Second

// found is how many of entries stand right behind entry number after, where others may follow.
// Their bytes are compared too: a process may do a job twice at a time, and then has one writer for
// both.
func (l *Log) found(ctx context.Context, after uint64, entries []swarms.Entry) (n int, err error) {
	s, err := l.c.conn.JS.Stream(ctx, l.stream)
	if err != nil {
		return 0, err
	}
	state := s.CachedInfo().State
	for ; n < len(entries); n++ {
		seq := after + uint64(n) + 1
		if seq < state.FirstSeq || seq > state.LastSeq {
			return n, nil
		}
		m, err := l.c.conn.GetOnce(ctx, l.stream, map[string]any{"seq": seq})
		if errors.Is(err, jobs.ErrNotFound) { // another leader has answered, which lags behind
			return n, fmt.Errorf("%w: %w", nats.ErrTimeout, err)
		}
		if err != nil {
			return n, err
		}
		e, err := entry(seq, m.Header, m.Data)
		if err != nil || m.Header.Get(headerWriter) != l.c.conn.Writer || e.Kind != entries[n].Kind ||
			e.Ref != entries[n].Ref || !bytes.Equal(e.Data, entries[n].Data) {
			return n, nil // one that cannot be read is somebody else's
		}
	}
	return n, nil
}

// Last returns the last entry, or one with Seq 0 when the log is empty. jobs.ErrNotFound when there
// is no such log.
func (l *Log) Last(ctx context.Context) (swarms.Entry, error) {
	e, _, err := l.end(ctx)
	return e, err
}

// end is Last, with the writer of the entry. It asks the leader: the client's own call asks
// whichever replica answers first where the stream allows that, as those that earlier versions have
// made do.
func (l *Log) end(ctx context.Context) (e swarms.Entry, writer string, err error) {
	what := "read the end of " + l.stream
	err = l.c.conn.Retry(ctx, what, func(ctx context.Context) error {
		e, writer = swarms.Entry{}, ""
		m, err := l.c.conn.LastOnce(ctx, l.stream, l.subject)
		if errors.Is(err, jobs.ErrNotFound) { // nothing is in it, or everything that was is trimmed
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

func entry(seq uint64, h nats.Header, data []byte) (swarms.Entry, error) {
	ref, err := strconv.ParseUint(h.Get(headerRef), 10, 64)
	if err != nil {
		return swarms.Entry{}, jobs.Errorf(jobs.CodeInvalid, "log entry %d: header %s is %q, not a number", seq,
			headerRef, h.Get(headerRef))
	}
	return swarms.Entry{Seq: seq, Kind: h.Get(headerKind), Ref: ref, Data: data, Trace: natsconn.TraceOf(h)}, nil
}

// Reader is a swarms.Reader over a consumer that the server forgets when it is not read. The client's
// own ordered consumer is not used: once its stream is deleted it tries for ever to make a new one
// and no context ends that.
type Reader struct {
	log  *Log
	it   jetstream.MessagesContext // nil: to be made again
	next uint64
	last uint64 // digest of the entry before next; 0 before the first one
	late bool   // the leader had entry next at the last look, and it has not come
}

// A reader that gets nothing for readerIdle asks the leader whether there is an entry. One that has
// not come readerLate later never may: the consumer is on a server whose replica does not follow,
// and its heartbeats go on. The reader then makes another consumer, which may be on another server.
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
	err := l.c.conn.Retry(ctx, "read "+l.stream, func(ctx context.Context) error {
		if err := r.check(ctx, began); err != nil {
			return err
		}
		c, err := l.c.conn.JS.CreateConsumer(ctx, l.stream, jetstream.ConsumerConfig{
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
		// 32 batches of less than 1 MiB each bound what a slow reader holds in memory. A heartbeat
		// that stays out for two seconds tells that the consumer or the server is gone.
		r.it, err = c.Messages(jetstream.PullMaxMessages(32), jetstream.PullExpiry(20*time.Second),
			jetstream.PullHeartbeat(time.Second))
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("read %s: %w", l.stream, jobs.ErrNotFound)
	}
	return err
}

// check returns an ErrFenced when the log has another entry, or none, in the place of the last one
// that was read: it was put back to an earlier state since, as from a backup. What comes next does
// not follow what was read.
func (r *Reader) check(ctx context.Context, began time.Time) error {
	if r.last == 0 {
		return nil
	}
	l := r.log
	m, err := l.c.conn.GetOnce(ctx, l.stream, map[string]any{"seq": r.next - 1})
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
	case end.Seq >= r.next: // it was trimmed behind the reader
		return nil
	case time.Since(began) < shortPatience:
		return fmt.Errorf("%w: %w", nats.ErrTimeout, errShort{r.next - 1, end.Seq})
	}
	return fmt.Errorf("read %s: %w: the log was put back to an earlier state: %w", l.stream,
		errShort{r.next - 1, end.Seq}, jobs.ErrFenced)
}

// digestSeed is that of this process, which alone compares digests.
var digestSeed = maphash.MakeSeed()

// digest tells a stored entry from others in its place. It is never 0.
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

// look compares the end of the log, by its leader, with what has come.
func (r *Reader) look(ctx context.Context) {
	l := r.log
	try, cancel := context.WithTimeout(ctx, natsconn.LongTry)
	defer cancel()
	m, err := l.c.conn.LastOnce(try, l.stream, l.subject)
	switch {
	case err != nil: // missing heartbeats and the next look tell of a server that is gone
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
		default: // the consumer is gone, with its stream or without, or the connection was
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
			return swarms.Entry{}, fmt.Errorf("read %s: entry %d is the first there is, %d is wanted: the log was "+
				"trimmed", r.log.stream, seq, r.next)
		case seq > r.next: // a delivery was lost on the way
			r.Close()
			continue
		}
		r.next++
		r.last = digest(m.Headers(), m.Data())
		e, err := entry(r.next-1, m.Headers(), m.Data())
		e.Behind = meta.NumPending
		return e, err
	}
}

// Close ends the reading. A second call does nothing.
func (r *Reader) Close() {
	if r.it != nil {
		r.it.Stop()
		r.it = nil
	}
}

// Trim removes the entries before number first.
func (l *Log) Trim(ctx context.Context, first uint64) error {
	return l.c.conn.Retry(ctx, "trim "+l.stream, func(ctx context.Context) error {
		s, err := l.c.conn.JS.Stream(ctx, l.stream)
		if err != nil {
			return err
		}
		return s.Purge(ctx, jetstream.WithPurgeSequence(first))
	})
}
