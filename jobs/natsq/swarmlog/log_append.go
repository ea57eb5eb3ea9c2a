package swarmlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.opentelemetry.io/otel/attribute"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/tracing"
)

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
		if err := l.append(ctx, after, size, entries[:n]); err != nil {
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

// append stores at most one batch of entries, whose data has size bytes.
func (l *Log) append(ctx context.Context, after uint64, size int, entries []swarms.Entry) (err error) {
	msgs := make([]*nats.Msg, len(entries))
	for i, e := range entries {
		own := ctx
		if e.Trace.Parent != "" {
			own = tracing.With(ctx, e.Trace)
		}
		own, span := l.conn.StartSend(own, "append", l.template)
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
			headerWriter: {l.conn.Writer},
		}}
		if e.Note != "" {
			if err := checkNote(e.Note); err != nil {
				return fmt.Errorf("append %s %d to %s: %w", e.Kind, e.Ref, l.stream, err)
			}
			msgs[i].Header[headerNote] = []string{e.Note}
		}
		l.conn.Inject(own, msgs[i])
	}
	what := fmt.Sprintf("append %s %d to %s", entries[0].Kind, entries[0].Ref, l.stream)
	if n := len(entries); n > 1 {
		what = fmt.Sprintf("append %d entries, to %s %d, to %s", n, entries[n-1].Kind, entries[n-1].Ref, l.stream)
	}
	done, began := 0, time.Now() // done entries are known to be stored
	err = l.conn.RetrySending(ctx, what, size, func(ctx context.Context) error {
		for done < len(msgs) {
			n, err := l.publish(ctx, after+uint64(done), msgs[done:])
			done += n
			if err == nil {
				continue
			}
			var api *jetstream.APIError
			switch {
			case errors.Is(err, jetstream.ErrNoStreamResponse): // no stream, or no leader for the moment?
				if _, serr := l.conn.JS.Stream(ctx, l.stream); errors.Is(serr, jetstream.ErrStreamNotFound) {
					return serr
				}
				return err
			case errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
				api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
				// Another writer has appended, or an earlier try of this call was stored and its
				// acknowledgement was lost. A try that ends while it compares entries keeps its count,
				// so the next try goes on from there.
				n, err := l.stored(ctx, after+uint64(done), entries[done:])
				done += n
				if short := (errShort{}); errors.As(err, &short) {
					if time.Since(began) < shortPatience {
						return fmt.Errorf("%w: %w", nats.ErrTimeout, err)
					}
					return fmt.Errorf("%w: the log was put back to an earlier state: %w", err, jobs.ErrFenced)
				}
				if err != nil {
					return err
				}
				if n == 0 { // the server compares with another end than it reports, as after an election
					return fmt.Errorf("%w: %w", nats.ErrTimeout, api)
				}
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
		err := l.conn.PublishBatchOnce(ctx, msgs)
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
		answered := l.conn.Timed(natsconn.OpPublish)
		_, err := l.conn.JS.PublishMsg(ctx, m, jetstream.WithExpectLastSequence(after+uint64(i)),
			jetstream.WithRetryAttempts(0))
		answered(err)
		if err != nil {
			return i, err
		}
	}
	mode.Observe(false, len(msgs), time.Since(began))
	return len(msgs), nil
}

// stored returns how many of the entries follow entry number after, also with an error. It fails
// with jobs.ErrFenced if entries of another writer do, and with errShort if the log ends before
// entry number after.
func (l *Log) stored(ctx context.Context, after uint64, entries []swarms.Entry) (int, error) {
	last, writer, err := l.end(ctx)
	if err != nil {
		return 0, err
	}
	n := last.Seq - after
	switch {
	case last.Seq == after:
		return 0, nil
	case last.Seq > after && n <= uint64(len(entries)) && writer == l.conn.Writer && same(last, entries[n-1]):
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
	s, err := l.conn.JS.Stream(ctx, l.stream)
	if err != nil {
		return 0, err
	}
	state := s.CachedInfo().State
	for ; n < len(entries); n++ {
		seq := after + uint64(n) + 1
		if seq < state.FirstSeq || seq > state.LastSeq {
			return n, nil
		}
		m, err := l.conn.GetOnce(ctx, l.stream, map[string]any{"seq": seq})
		if errors.Is(err, jobs.ErrNotFound) { // the answer is of a new leader that is behind
			return n, fmt.Errorf("%w: %w", nats.ErrTimeout, err)
		}
		if err != nil {
			return n, err
		}
		e, err := entry(seq, m.Header, m.Data)
		if err != nil || m.Header.Get(headerWriter) != l.conn.Writer || !same(e, entries[n]) {
			return n, nil // an entry that cannot be read is of another writer
		}
	}
	return n, nil
}
