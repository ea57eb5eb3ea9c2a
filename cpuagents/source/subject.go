package source

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
)

// Queue is the part of the queue that sources need. Its methods may be called concurrently.
type Queue interface {
	// Subscribe reads a stream that does not belong to the queue. Unsubscribe removes a consumer of
	// a stream.
	Subscribe(ctx context.Context, s jobs.Subscription) (jobs.Subscriber, error)
	Unsubscribe(ctx context.Context, stream, consumer string) error
	// SendRows sends a message to the submitter of a job and returns its answer.
	SendRows(ctx context.Context, job string, message []byte) (answer []byte, err error)
}

// SubjectSpec says how the messages of a subject at nats:STREAM/SUBJECT are read. It must have
// Messages, For, or both.
type SubjectSpec struct {
	// Messages is the number of messages to read, up to 1,000,000,000; 0 for no bound.
	Messages uint64 `json:"messages,omitempty"`
	// For is the time to read, in seconds from the first attempt, 0.1 to 31,536,000; 0 for no
	// bound.
	For float64 `json:"for_s,omitempty"`
	// New leaves out messages that were published before the job.
	New bool `json:"new,omitempty"`
	// Consumer is the name of a durable consumer that outlives the job: the next job with this name
	// continues after this one. If it is empty, the job has its own consumer, which is removed with
	// it.
	Consumer string `json:"consumer,omitempty"`
	// BatchMessages is the most messages of a document, 1 to 10,000; 0 means 1000. BatchSeconds is
	// how long one is collected after its first message, 0.001 to 60; 0 means 1.
	BatchMessages int     `json:"batch_messages,omitempty"`
	BatchSeconds  float64 `json:"batch_s,omitempty"`
}

// PushSpec says how the rows of a push endpoint at push:NAME are read. It must have Rows, For, or
// both.
type PushSpec struct {
	// Rows is the number of rows to read, up to 1,000,000,000; 0 for no bound. Rows that were
	// pushed together with the last one are read too.
	Rows uint64 `json:"rows,omitempty"`
	// For and BatchSeconds are as in SubjectSpec.
	For          float64 `json:"for_s,omitempty"`
	BatchSeconds float64 `json:"batch_s,omitempty"`
}

type subjectState struct {
	Seq uint64 `json:"seq"` // of the last message
	progress
}

type subjectFetcher struct {
	collector
	queue Queue
	sub   jobs.Subscription
	in    jobs.Subscriber // nil before the first document
}

// newSubjectFetcher returns the fetcher of nats:STREAM/SUBJECT. The parameter consumer is the name
// of the job's own consumer.
func newSubjectFetcher(
	uri string, format rows.Format, spec *SubjectSpec, consumer string, s Resources,
) (*subjectFetcher, error) {
	bad := badSource(uri)
	stream, subject, ok := strings.Cut(strings.TrimPrefix(uri, "nats:"), "/")
	if !ok || stream == "" || strings.ContainsAny(stream, " .*>\\\t\r\n\x00") {
		return nil, bad(
			"write nats:STREAM/SUBJECT, with the JetStream stream that keeps the subject: what no stream keeps " +
				"cannot be read again after a failure",
		)
	}
	for part := range strings.SplitSeq(subject, ".") {
		if part == "" || strings.ContainsAny(part, " \t\r\n\x00") {
			return nil, bad("subject %s: its parts are not empty and hold no spaces", access.Quote(subject))
		}
	}
	if spec == nil {
		spec = &SubjectSpec{}
	}
	if spec.Consumer != "" && jobs.CheckID("consumer", spec.Consumer) != nil {
		return nil, bad("consumer %s: use letters, digits, '-' and '_'", access.Quote(spec.Consumer))
	}
	if err := s.AllowStream(stream); err != nil {
		return nil, bad("%v", err)
	}
	sub := jobs.Subscription{
		Stream:   stream,
		Subject:  subject,
		Consumer: cmp.Or(spec.Consumer, consumer),
		Keep:     spec.Consumer != "",
		New:      spec.New,
		Owner:    s.Owner,
	}
	return newSubjects(uri, format, "messages", *spec, sub, s)
}

// newPushFetcher returns the fetcher of push:NAME. All jobs that read a name share its consumer: a
// later job continues after what this one has stored.
func newPushFetcher(uri string, format rows.Format, spec *PushSpec, s Resources) (*subjectFetcher, error) {
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
	if name = pushName(s.Owner, name); jobs.CheckID("name", name) != nil {
		return nil, bad("the name is too long")
	}
	bounds := SubjectSpec{Messages: spec.Rows, For: spec.For, BatchSeconds: spec.BatchSeconds}
	return newSubjects(uri, "ndjson", "rows", bounds, jobs.Subscription{
		Push: name, Consumer: "push-" + name, Keep: true, Owner: s.Owner,
	}, s)
}

// newSubjects returns the fetcher of a subscription. The parameter counted names what is counted.
func newSubjects(
	uri string, format rows.Format, counted string, bounds SubjectSpec, sub jobs.Subscription, s Resources,
) (*subjectFetcher, error) {
	c, err := newCollector(uri, format, counted, bounds, s.Endless)
	if err != nil {
		return nil, err
	}
	sub.Ahead = c.bounds.BatchMessages
	return &subjectFetcher{collector: c, queue: s.Queue, sub: sub}, nil
}

// close implements fetcher. A durable consumer stays on the queue.
func (f *subjectFetcher) close() error {
	if f.in != nil {
		f.in.Close()
		f.in = nil
	}
	return nil
}

func (f *subjectFetcher) reopen() { _ = f.close() }

// remove removes the job's own consumer. A consumer that the specification names stays for the next
// job.
func (f *subjectFetcher) remove(ctx context.Context) error {
	if f.sub.Keep {
		return nil
	}
	return f.queue.Unsubscribe(ctx, f.sub.Stream, f.sub.Consumer)
}

// fetch implements fetcher. NDJSON documents collect several messages; any other format has one
// message a document. Messages are acknowledged only after the journal has the document, so a crash
// loses none.
func (f *subjectFetcher) fetch(ctx context.Context, at position, _ string, doc *os.File) (position, error) {
	var st subjectState
	if err := f.restore(at, &st, &st.progress); err != nil {
		return position{}, err
	}
	if f.in == nil {
		var err error
		f.sub.After = st.Seq
		if f.in, err = f.queue.Subscribe(ctx, f.sub); err != nil {
			return position{}, f.class(err)
		}
	}
	wait, d := f.collect(ctx, &st.progress)
	defer d.close()
	w := files.ScratchWriter(doc)
	for !d.full() {
		m, err := f.in.Next(wait)
		if ctx.Err() == nil && errors.Is(err, errOver) {
			break
		}
		if err != nil {
			return position{}, f.class(err)
		}
		st.Seq = m.Seq
		count := uint64(1)
		switch {
		case f.sub.Push != "": // whole lines
			count = uint64(bytes.Count(m.Data, []byte{'\n'}))
		case f.format == "ndjson":
			m.Data = append(m.Data, '\n')
		}
		d.add(len(m.Data), count)
		if _, err := w.Write(m.Data); err != nil {
			return position{}, err
		}
		if f.format != "ndjson" { // a file each
			break
		}
	}
	return f.position(st, st.progress, f.format, nil)
}

// stored implements fetcher. It acknowledges what the journal holds.
func (f *subjectFetcher) stored(ctx context.Context, at position) {
	var st subjectState
	if at.decode(f.where, &st) == nil && f.in != nil {
		f.in.Ack(ctx, st.Seq)
	}
}

// class adds the name of the source to the errors of the queue.
func (f *subjectFetcher) class(err error) error {
	var typed *jobs.Error
	switch {
	case errors.As(err, &typed):
		return fmt.Errorf("source %s: %w", f.where, err)
	case errors.Is(err, jobs.ErrNotFound):
		return access.InputError("source %s: its stream was removed", f.where)
	case errors.Is(err, jobs.ErrUnavailable):
		return jobs.Retry(fmt.Errorf("source %s: %w", f.where, err))
	}
	return fmt.Errorf("source %s: %w", f.where, err)
}

// pushName returns the name of an endpoint in the whole cluster: the name of a tenant's endpoint
// begins with the tenant.
func pushName(of jobs.Owner, name string) string {
	if of.Shared() || strings.HasPrefix(name, of.Tenant+"--") {
		return name
	}
	return of.Tenant + "--" + name
}
