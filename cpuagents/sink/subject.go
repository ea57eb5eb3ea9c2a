package sink

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// subjectPiece bounds a message in bytes, approximately. It is half of what a NATS server accepts
// by default.
const subjectPiece = 512 << 10

// subjectSink publishes decisions to a subject that a JetStream stream keeps. A message is a
// document of a part of a batch. Its id consists of job, sink, batch and piece, so the stream drops
// a repeated message while it remembers ids. If nobody else publishes to the subject, the last
// message of the subject gives the position, however old it is.
type subjectSink struct {
	base
	positionLog
	rows.Document
	queue           Queue
	key             string // of job and sink
	stream, subject string
	batch, piece    uint64 // the last message of the subject, when it is this sink's
}

// newSubject returns the sink of a subject, if the tenant of the job may publish to its stream. key
// identifies job and sink in the ids of messages.
func newSubject(b base, key string, p rows.Document, s Resources) (*subjectSink, error) {
	stream, subject, ok := strings.Cut(strings.TrimPrefix(b.spec.URI, "nats:"), "/")
	if !ok || stream == "" || subject == "" || strings.ContainsAny(stream+subject, " *>\\\t\r\n\x00?") ||
		strings.Contains(stream, ".") {
		return nil, b.bad("write nats:STREAM/SUBJECT, with the JetStream stream that keeps the subject")
	}
	if err := s.AllowStream(stream); err != nil {
		return nil, b.bad("%v", err)
	}
	return &subjectSink{base: b, Document: p, queue: s.Queue, key: key, stream: stream, subject: subject}, nil
}

func (t *subjectSink) Open(ctx context.Context, log swarms.Log) error {
	if err := t.positionLog.Open(ctx, log); err != nil {
		return err
	}
	id, err := t.queue.Published(ctx, t.stream, t.subject)
	if err != nil {
		return fmt.Errorf("sink %s: %w", t.where, err)
	}
	if rest, mine := strings.CutPrefix(id, t.key+"/"); mine {
		number, piece, _ := strings.Cut(rest, "/")
		t.batch, _ = strconv.ParseUint(number, 10, 64)
		t.piece, _ = strconv.ParseUint(piece, 10, 64)
	}
	return nil
}

func (t *subjectSink) Send(ctx context.Context, number uint64, d *batch.Decisions) error {
	if number <= t.sent {
		return nil
	}
	piece := uint64(0)
	for i := range d.Len() {
		if t.wanted(d, i) {
			if err := t.Add(d, i); err != nil {
				return err
			}
		}
		if t.Rows() > 0 && (t.Size() >= subjectPiece*3/4 || i == d.Len()-1) {
			piece++
			if err := t.publish(ctx, number, piece); err != nil {
				return err
			}
		}
	}
	if piece == 0 {
		return nil
	}
	return t.advance(ctx, number)
}

func (t *subjectSink) publish(ctx context.Context, number, piece uint64) error {
	data, err := t.Take()
	if err != nil {
		return err
	}
	if number < t.batch || number == t.batch && piece <= t.piece {
		return nil // published by an attempt that ended before it stored its position
	}
	p := jobs.Publication{
		Stream:  t.stream,
		Subject: t.subject,
		ID:      fmt.Sprintf("%s/%d/%d", t.key, number, piece),
		Type:    t.MediaType(),
		Data:    data,
	}
	err = t.try(ctx, func(ctx context.Context) error {
		err := t.queue.Publish(ctx, p)
		var typed *jobs.Error
		if errors.As(err, &typed) || errors.Is(err, jobs.ErrDenied) {
			err = retry.Permanent(err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("sink %s: %w", t.where, err)
	}
	return nil
}

// End implements Sink: nothing is held back.
func (t *subjectSink) End(context.Context) error { return nil }

// Close implements Sink. The connection belongs to the queue.
func (t *subjectSink) Close() {}
