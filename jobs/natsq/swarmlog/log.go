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

// Headers of an entry. Its number is the sequence number of the message.
const (
	headerKind   = "Exo-Kind"
	headerRef    = "Exo-Ref"
	headerWriter = "Exo-Writer"
	headerNote   = "Exo-Note"
)

// Log is a swarms.Log: a stream with a single subject. It has no state but single, so a caller may
// make one per use.
type Log struct {
	c       *Swarms
	stream  string
	subject string

	template string // the name of the stream with placeholders, for traces

	single atomic.Bool // the stream takes no atomic batches, as those of earlier programs
}

// logPrefix begins the names of the streams of logs.
const logPrefix = "EXO_LOG_"

// Log returns a log of a shard without a request to the server. swarm is the key of the swarm
// (swarms.Swarm.Key), so two swarms of one id have different logs. The log need not exist.
func (sw *Swarms) Log(swarm string, shard int, d swarms.Direction) swarms.Log {
	return &Log{
		c:       sw,
		stream:  fmt.Sprintf("%s%s_%d_%s", logPrefix, swarm, shard, d),
		subject: fmt.Sprintf("exo.log.%s.%d.%s", swarm, shard, d),

		template: logPrefix + "{swarm}_{shard}_" + string(d),
	}
}

// Create implements swarms.Log. A log that exists keeps its configuration, except for the replicas.
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
	if fast { // which the server does not offer for replicated streams
		replicas, persist = 1, jetstream.AsyncPersistMode
	}
	began := time.Now()
	return l.c.conn.Retry(ctx, "create log "+l.stream, func(ctx context.Context) error {
		_, err := l.c.conn.JS.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name:     l.stream,
			Subjects: []string{l.subject},
			Replicas: replicas,
			// The server acknowledges messages of an asynchronous stream before they are on the
			// disk, and takes no atomic batches for it.
			PersistMode: persist,
			Retention:   jetstream.LimitsPolicy,
			Discard:     jetstream.DiscardNew,
			// Callers decide by the end of a log, so a replica that is behind must not answer.
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

// errCodeNoCluster is the error of a single server for more than one replica. A cluster with too
// few servers returns natsconn.ErrCodeNoPeers.
const errCodeNoCluster = 10074

// tooFewServers reports whether a stream was refused because it has more replicas than the cluster
// has servers. A cluster returns the same error for a moment during an election, and as long as one
// of its servers is away. In the second case the error names the offline peer, and the stream can
// be made when that server is back.
func tooFewServers(err error, after time.Duration) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	return api.ErrorCode == errCodeNoCluster || api.ErrorCode == natsconn.ErrCodeNoPeers && after > shortPatience &&
		!strings.Contains(api.Description, offlinePeer)
}

// offlinePeer is the text that nats-server 2.15.2 adds to the error while a server of the cluster
// is away.
const offlinePeer = "peer offline"

// wakes returns the configuration with which the server republishes the headers of the entries of a
// log of entries, for agents that have parked its shard (Wakes). It is nil for a log of answers.
func (l *Log) wakes() *jetstream.RePublish {
	if !strings.HasSuffix(l.template, "_"+string(swarms.In)) {
		return nil
	}
	return &jetstream.RePublish{Source: l.subject, Destination: wakeSubject(l.subject), HeadersOnly: true}
}

// Delete implements swarms.Log.
func (l *Log) Delete(ctx context.Context) error { return l.c.conn.DeleteStream(ctx, l.stream) }

// Append implements swarms.Log. The expected last sequence number of JetStream is the fence.
// Several entries are one atomic batch, or are sent one at a time. If the second entry were sent
// before the first is stored, an entry of another writer could take the place of the first, and the
// server would still accept the second.
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

// Bounds of one atomic batch. Up to 64 entries cost as much as one (package publishmode). The
// servers of a cluster keep a batch in memory until it is complete.
const (
	appendMost  = 256
	appendBytes = 8 << 20
)

// append stores at most one batch of entries.
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
		if e.Note != "" {
			if err := checkNote(e.Note); err != nil {
				return fmt.Errorf("append %s %d to %s: %w", e.Kind, e.Ref, l.stream, err)
			}
			msgs[i].Header[headerNote] = []string{e.Note}
		}
		l.c.conn.Inject(own, msgs[i])
	}
	what := fmt.Sprintf("append %s %d to %s", entries[0].Kind, entries[0].Ref, l.stream)
	if n := len(entries); n > 1 {
		what = fmt.Sprintf("append %d entries, to %s %d, to %s", n, entries[n-1].Kind, entries[n-1].Ref, l.stream)
	}
	done, began := 0, time.Now() // done entries are known to be stored
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
				// Another writer has appended, or an earlier try of this call was stored and its
				// acknowledgement was lost.
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
				if n <= done { // the server compares with another end than it reports, as after an election
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
		// The other errors are limits: no space, no memory, too many messages. Waiting does not
		// help.
		return fmt.Errorf("%s: the NATS server refuses (%w): free disk space or raise its limits", what, err)
	}
	return err
}

// checkNote returns an error of class jobs.CodeInvalid for a note that a header cannot hold.
func checkNote(note string) error {
	if len(note) > swarms.MaxNote {
		return jobs.Errorf(jobs.CodeInvalid, "the note has %d bytes: use at most %d", len(note), swarms.MaxNote)
	}
	for i := range len(note) {
		if note[i] < ' ' || note[i] > '~' {
			return jobs.Errorf(jobs.CodeInvalid, "byte %d of the note is %#x: use printable ASCII", i, note[i])
		}
	}
	if note[0] == ' ' || note[len(note)-1] == ' ' {
		return jobs.Errorf(jobs.CodeInvalid, "the note begins or ends with a space")
	}
	return nil
}

// Errors of the server for an atomic batch: the stream does not take batches, or a message of the
// batch was lost. natsconn.ErrCodeManyBatches means that too many batches are in progress.
const (
	errCodeNoBatches  = 10174
	errCodeIncomplete = 10176
)

// publish stores messages, the first one right after entry number after. With an error it returns
// how many are known to be stored.
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
		answered := l.c.conn.Timed(natsconn.OpPublish)
		_, err := l.c.conn.JS.PublishMsg(ctx, m, jetstream.WithExpectLastSequence(after+uint64(i)),
			jetstream.WithRetryAttempts(0))
		answered(err)
		if err != nil {
			return i, err
		}
	}
	mode.Observe(false, len(msgs), time.Since(began))
	return len(msgs), nil
}

// stored returns how many of the entries follow entry number after. It fails with jobs.ErrFenced if
// entries of another writer do, and with errShort if the log ends before entry number after.
func (l *Log) stored(ctx context.Context, after uint64, entries []swarms.Entry) (int, error) {
	last, writer, err := l.end(ctx)
	if err != nil {
		return 0, err
	}
	n := last.Seq - after
	switch {
	case last.Seq == after:
		return 0, nil
	case last.Seq > after && n <= uint64(len(entries)) && writer == l.c.conn.Writer && same(last, entries[n-1]):
		return int(n), nil
	case last.Seq > after: // another writer has appended, after all of them or instead of some
		found, err := l.found(ctx, after, entries)
		if err != nil || found == len(entries) {
			return found, err
		}
		return 0, fmt.Errorf("behind %d: the last entry is %d: %w", after, last.Seq, jobs.ErrFenced)
	}
	return 0, errShort{after, last.Seq}
}

// same reports whether a stored entry is one that was to be appended.
func same(stored, e swarms.Entry) bool {
	return stored.Kind == e.Kind && stored.Ref == e.Ref && stored.Note == e.Note && bytes.Equal(stored.Data, e.Data)
}

// errShort reports that a log ends before an entry that was stored in it. A leader that is cut off
// from its cluster returns an old end, and a new leader does until it has applied all stored
// entries. The end of a log that was restored to an earlier state stays as it is.
type errShort struct{ after, last uint64 }

func (e errShort) Error() string {
	return fmt.Sprintf("behind %d: the last entry is %d, which is before it", e.after, e.last)
}

// shortPatience is how long a log that is too short is asked again before it counts as restored to
// an earlier state. A leader that is cut off gives up after 4 to 9 s.
const shortPatience = 10 * time.Second

// found returns how many of the entries follow entry number after; entries of other writers may
// come after them. It compares their bytes too, because two attempts of one job may run in one
// process and then share a writer name.
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
		if errors.Is(err, jobs.ErrNotFound) { // the answer is of a new leader that is behind
			return n, fmt.Errorf("%w: %w", nats.ErrTimeout, err)
		}
		if err != nil {
			return n, err
		}
		e, err := entry(seq, m.Header, m.Data)
		if err != nil || m.Header.Get(headerWriter) != l.c.conn.Writer || !same(e, entries[n]) {
			return n, nil // an entry that cannot be read is of another writer
		}
	}
	return n, nil
}

// Last implements swarms.Log.
func (l *Log) Last(ctx context.Context) (swarms.Entry, error) {
	e, _, err := l.end(ctx)
	return e, err
}

// end is Last with the writer of the entry. It asks the leader. The client's own call would ask any
// replica if the stream allows that, as the streams of earlier versions do.
func (l *Log) end(ctx context.Context) (e swarms.Entry, writer string, err error) {
	what := "read the end of " + l.stream
	err = l.c.conn.Retry(ctx, what, func(ctx context.Context) error {
		e, writer = swarms.Entry{}, ""
		m, err := l.c.conn.LastOnce(ctx, l.stream, l.subject)
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
	next uint64                    // number of the next entry
	last uint64                    // digest of the entry before next; 0 before the first entry
	late bool                      // at the last look the leader had entry next
}

// A reader without an entry for readerIdle asks the leader for the end of the log. If an entry is
// there and does not come within readerLate, the consumer is on a server whose replica does not
// follow, although its heartbeats go on. The reader then makes another consumer, which may be on
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

// open makes the consumer, from entry next on.
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
		// 32 messages of less than 1 MiB each bound the memory of a slow reader. Without a
		// heartbeat for two seconds the consumer or the server is gone.
		r.it, err = c.Messages(jetstream.PullMaxMessages(32), jetstream.PullExpiry(20*time.Second),
			jetstream.PullHeartbeat(time.Second))
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("read %s: %w", l.stream, jobs.ErrNotFound)
	}
	return err
}

// check fails with jobs.ErrFenced if the log has another entry, or none, in the place of the last
// one that was read: it was restored to an earlier state since, for example from a backup. The next
// entry would not follow those that were read.
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

// look asks the leader for the end of the log, and closes the consumer if entry next is there at
// two looks in turn. Next then makes another consumer.
func (r *Reader) look(ctx context.Context) {
	l := r.log
	try, cancel := context.WithTimeout(ctx, natsconn.LongTry)
	defer cancel()
	m, err := l.c.conn.LastOnce(try, l.stream, l.subject)
	switch {
	case err != nil: // missing heartbeats or the next look find a server that is gone
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
			return swarms.Entry{}, fmt.Errorf("read %s: entry %d is the first there is, %d is wanted: the log was "+
				"trimmed", r.log.stream, seq, r.next)
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
