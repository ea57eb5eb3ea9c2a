package cpuagents

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
)

// sourceQueue is what sources need of the queue.
type sourceQueue interface {
	// Subscribe reads a stream that does not belong to the queue. Unsubscribe removes a consumer of a stream.
	Subscribe(ctx context.Context, s jobs.Subscription) (jobs.Subscriber, error)
	Unsubscribe(ctx context.Context, stream, consumer string) error
}

// SubjectSpec says how to read what is published to a subject, at nats:STREAM/SUBJECT. Messages, For, or both bound it.
type SubjectSpec struct {
	// Messages is how many messages are read in all, up to 1,000,000,000; 0 for no bound.
	Messages uint64 `json:"messages,omitempty"`
	// For is how long it is read, in seconds from the first attempt, 0.1 to 31,536,000; 0 for no bound.
	For float64 `json:"for_s,omitempty"`
	// New leaves out what was published before.
	New bool `json:"new,omitempty"`
	// Consumer is the name of a durable consumer that outlives the job: the next one goes on where this one ended. Empty is one of
	// the job's own, which goes with it.
	Consumer string `json:"consumer,omitempty"`
	// BatchMessages is the most messages of a document, 1 to 10,000; 0 means 1000. BatchSeconds is how long one is collected after its
	// first message, 0.001 to 60; 0 means 1.
	BatchMessages int     `json:"batch_messages,omitempty"`
	BatchSeconds  float64 `json:"batch_s,omitempty"`
}

// PushSpec says how to read what is pushed to an endpoint, at push:NAME. Rows, For, or both bound it.
type PushSpec struct {
	// Rows is how many rows are read in all, up to 1,000,000,000, and those that were pushed together with the last of them; 0 for no bound.
	Rows uint64 `json:"rows,omitempty"`
	// For and BatchSeconds as those of SubjectSpec.
	For          float64 `json:"for_s,omitempty"`
	BatchSeconds float64 `json:"batch_s,omitempty"`
}

// batchBytes is how long a document of several messages gets before it is stored.
const batchBytes = 8 << 20

// subjectState is where such a source stands.
type subjectState struct {
	Seq   uint64    `json:"seq"`             // of the last message
	Count uint64    `json:"count,omitempty"` // of messages, or of rows that were pushed
	Until time.Time `json:"until,omitzero"`
}

// subjectFetcher collects messages of a stream.
type subjectFetcher struct {
	where  string
	format rows.Format
	spec   SubjectSpec
	queue  Queue
	sub    jobs.Subscription
	in     jobs.Subscriber // nil before the first document
	until  time.Time       // of this attempt, when no document holds it
}

// newSubjectFetcher reads nats:STREAM/SUBJECT. consumer is the job's own.
func newSubjectFetcher(uri string, format rows.Format, spec *SubjectSpec, consumer string, s *Streamer) (*subjectFetcher, error) {
	bad := badSource(uri)
	stream, subject, ok := strings.Cut(strings.TrimPrefix(uri, "nats:"), "/")
	if !ok || stream == "" || strings.ContainsAny(stream, " .*>\\\t\r\n\x00") {
		return nil, bad("write nats:STREAM/SUBJECT, with the JetStream stream that keeps the subject: what no stream keeps cannot be read again after a failure")
	}
	for part := range strings.SplitSeq(subject, ".") {
		if part == "" || strings.ContainsAny(part, " \t\r\n\x00") {
			return nil, bad("subject %s: its parts are not empty and hold no spaces", fault.Quote(subject))
		}
	}
	if spec == nil {
		spec = &SubjectSpec{}
	}
	if spec.Consumer != "" && jobs.CheckID("consumer", spec.Consumer) != nil {
		return nil, bad("consumer %s: use letters, digits, '-' and '_'", fault.Quote(spec.Consumer))
	}
	if err := s.Streams.check(s.owner, stream); err != nil {
		return nil, bad("%v", err)
	}
	sub := jobs.Subscription{Stream: stream, Subject: subject, Consumer: cmp.Or(spec.Consumer, consumer), Keep: spec.Consumer != "", New: spec.New, Owner: s.owner}
	return (&subjectFetcher{where: uri, format: cmp.Or(format, "ndjson"), spec: *spec, queue: s.Queue, sub: sub}).checked("messages")
}

// newPushFetcher reads push:NAME. Whichever job reads a name has its consumer: a later one takes over behind what this one has stored.
func newPushFetcher(uri string, format rows.Format, spec *PushSpec, s *Streamer) (*subjectFetcher, error) {
	bad := badSource(uri)
	name := strings.TrimPrefix(uri, "push:")
	if err := jobs.CheckID("name", name); err != nil {
		return nil, bad("write push:NAME: %v", err)
	}
	if cmp.Or(format, "ndjson") != "ndjson" {
		return nil, bad("format %s: what is pushed is ndjson here, however it came: leave the format out", format)
	}
	if spec == nil {
		spec = &PushSpec{}
	}
	if name = pushName(s.owner, name); jobs.CheckID("name", name) != nil {
		return nil, bad("the name is too long")
	}
	f := &subjectFetcher{
		where: uri, format: "ndjson", spec: SubjectSpec{Messages: spec.Rows, For: spec.For, BatchSeconds: spec.BatchSeconds}, queue: s.Queue,
		sub: jobs.Subscription{Push: name, Consumer: "push-" + name, Keep: true, Owner: s.owner},
	}
	return f.checked("rows")
}

func badSource(uri string) func(text string, args ...any) error {
	return func(text string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "source %s: %s", uri, fmt.Sprintf(text, args...))
	}
}

// checked fills in what is missing of the spec and returns what is wrong with the rest; what is counted goes by the name of counted.
func (f *subjectFetcher) checked(counted string) (*subjectFetcher, error) {
	bad := badSource(f.where)
	if f.spec.BatchMessages == 0 {
		f.spec.BatchMessages = 1000
	}
	if f.spec.BatchSeconds == 0 {
		f.spec.BatchSeconds = 1
	}
	switch s := f.spec; {
	case s.Messages == 0 && s.For == 0:
		return nil, bad("it has no end: set %s, for_s, or both", counted)
	case s.Messages > 1e9:
		return nil, bad("%s %d: use 1 to 1000000000", counted, s.Messages)
	case s.For != 0 && !(s.For >= 0.1 && s.For <= 31_536_000):
		return nil, bad("for_s %v: use 0.1 to 31536000", s.For)
	case s.BatchMessages < 1 || s.BatchMessages > 10_000:
		return nil, bad("batch_messages %d: use 1 to 10000", s.BatchMessages)
	case !(s.BatchSeconds >= 0.001 && s.BatchSeconds <= 60):
		return nil, bad("batch_s %v: use 0.001 to 60", s.BatchSeconds)
	}
	f.sub.Ahead = f.spec.BatchMessages
	return f, nil
}

func (f *subjectFetcher) close() error {
	if f.in != nil {
		f.in.Close()
		f.in = nil
	}
	return nil
}

// remove takes the job's own consumer away.
func (f *subjectFetcher) remove(ctx context.Context) error {
	if f.sub.Keep {
		return nil
	}
	return f.queue.Unsubscribe(ctx, f.sub.Stream, f.sub.Consumer)
}

// errOver ends the collecting of a document, or of all of them.
var errOver = errors.New("the time of a source is over")

// fetch implements fetcher.
func (f *subjectFetcher) fetch(ctx context.Context, at position, _ string, doc *os.File) (position, error) {
	var st subjectState
	if at.State != nil {
		if err := json.Unmarshal(at.State, &st); err != nil {
			return position{}, fmt.Errorf("position of %s: %w", f.where, err)
		}
	}
	if f.spec.For > 0 && st.Until.IsZero() {
		if f.until.IsZero() {
			f.until = time.Now().Add(time.Duration(f.spec.For * float64(time.Second))).UTC()
		}
		st.Until = f.until
	}
	if f.in == nil {
		var err error
		f.sub.After = st.Seq
		if f.in, err = f.queue.Subscribe(ctx, f.sub); err != nil {
			return position{}, f.class(err)
		}
	}
	wait := ctx
	if !st.Until.IsZero() {
		var cancel context.CancelFunc
		wait, cancel = context.WithDeadlineCause(ctx, st.Until, errOver)
		defer cancel()
	}
	w := files.ScratchWriter(doc)
	for n, size := 0, 0; n < f.spec.BatchMessages && size < batchBytes && (f.spec.Messages == 0 || st.Count < f.spec.Messages); {
		m, err := f.in.Next(wait)
		if ctx.Err() == nil && errors.Is(err, errOver) {
			break
		}
		if err != nil {
			return position{}, f.class(err)
		}
		if n++; n == 1 { // what has come is not kept waiting for long
			var cancel context.CancelFunc
			wait, cancel = context.WithTimeoutCause(wait, time.Duration(f.spec.BatchSeconds*float64(time.Second)), errOver)
			defer cancel()
		}
		st.Seq = m.Seq
		switch {
		case f.sub.Push != "": // whole lines
			st.Count += uint64(bytes.Count(m.Data, []byte{'\n'}))
		case f.format == "ndjson":
			m.Data = append(m.Data, '\n')
			fallthrough
		default:
			st.Count++
		}
		size += len(m.Data)
		if _, err := w.Write(m.Data); err != nil {
			return position{}, err
		}
		if f.format != "ndjson" { // a file each
			break
		}
	}
	next := position{Format: f.format, Exact: true, Done: f.spec.Messages > 0 && st.Count >= f.spec.Messages || !st.Until.IsZero() && !time.Now().Before(st.Until)}
	var err error
	if next.State, err = json.Marshal(st); err != nil {
		return position{}, fmt.Errorf("position of %s: %w", f.where, err)
	}
	return next, nil
}

// stored implements storer: what the journal holds is acknowledged.
func (f *subjectFetcher) stored(ctx context.Context, at position) {
	var st subjectState
	if json.Unmarshal(at.State, &st) == nil && f.in != nil {
		f.in.Ack(ctx, st.Seq)
	}
}

// class gives the queue's errors the place.
func (f *subjectFetcher) class(err error) error {
	var typed *jobs.Error
	switch {
	case errors.As(err, &typed):
		return fmt.Errorf("source %s: %w", f.where, err)
	case errors.Is(err, jobs.ErrNotFound):
		return fault.Input("source %s: its stream was removed", f.where)
	case errors.Is(err, jobs.ErrUnavailable):
		return jobs.Retry(fmt.Errorf("source %s: %w", f.where, err))
	}
	return fmt.Errorf("source %s: %w", f.where, err)
}
