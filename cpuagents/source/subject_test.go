package source

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

// topic is a stream that somebody else publishes to.
type topic struct {
	t      testing.TB
	q      *natsq.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
}

func newTopic(t testing.TB, retention jetstream.RetentionPolicy) *topic {
	t.Helper()
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	q := jobstest.Open(t, srv, natsq.Connect)
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatalf("nats.Connect: %v, want no error", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream.New: %v, want no error", err)
	}
	stream, err := js.CreateStream(fixture.Within(t),
		jetstream.StreamConfig{Name: "s", Subjects: []string{"a.>"}, Retention: retention})
	if err != nil {
		t.Fatalf("js.CreateStream: %v, want no error", err)
	}
	return &topic{t, q, js, stream}
}

// readsPart reads some rows of a source and closes it. They must be the first rows of want. It
// reports whether the source has ended.
func readsPart(t *testing.T, r rows.Reader, most int, want string) (ended bool) {
	t.Helper()
	got, err := told(r, most)
	if cerr := r.Close(); err != nil || cerr != nil {
		t.Fatalf("rows %q, %v, close: %v, want no error", got, err, cerr)
	}
	s := strings.Join(got, " ")
	if !strings.HasPrefix(want, s) {
		t.Fatalf("stopped after %d: %s", most, s)
	}
	return s == want && len(got) < most
}

// publish publishes a row a value.
func (p *topic) publish(values ...int) {
	p.t.Helper()
	for _, v := range values {
		p.put("a.b", fmt.Sprintf(`{"timestamp":%d,"value":%d}`, v, v))
	}
}

func (p *topic) put(subject, data string) {
	p.t.Helper()
	if _, err := p.js.Publish(fixture.Within(p.t), subject, []byte(data)); err != nil {
		p.t.Fatalf("publish to %s: %v", subject, err)
	}
}

func (p *topic) open(ctx context.Context, id string, format rows.Format, spec SubjectSpec) *documentReader {
	p.t.Helper()
	f, err := newSubjectFetcher("nats:s/a.*", format, &spec, "own",
		Resources{Queue: p.q.StreamJobs(), AllowStream: func(string) error { return nil }})
	if err != nil {
		p.t.Fatalf("make the fetcher: %v, want no error", err)
	}
	return remoteOf(ctx, p.t, p.q, id, f)
}

// pending is how many messages are on the way to the consumer, or not acknowledged.
func (p *topic) unread(consumer string) int {
	p.t.Helper()
	c, err := p.stream.Consumer(fixture.Within(p.t), consumer)
	if err != nil {
		p.t.Fatalf("consumer %s: %v, want no error", consumer, err)
	}
	info := c.CachedInfo()
	return int(info.NumPending) + info.NumAckPending
}

// TestSubject: what is published is read in its order, bounded, and what is not a row is rejected.
func TestSubject(t *testing.T) {
	t.Parallel()
	p := newTopic(t, jetstream.LimitsPolicy)
	p.publish(1, 2)
	p.put("a.b", "")
	// two rows, and the time of the previous row
	p.put("a.c", `{"timestamp":2,"value":3}`+"\n"+`{"timestamp":2,"value":4}`+"\n")
	p.put("a.b.c", `{"timestamp":9,"value":666}`) // another subject
	p.put("a.b", `{"timestamp":1,"value":5}`)
	p.put("a.b", "{\x00")
	p.put("a.b", `{"timestamp":3,"value":`+strings.Repeat(" ", 700<<10)+`6}`)
	p.publish(7, 8)
	r := p.open(fixture.Within(t), "subject", "", SubjectSpec{Messages: 8, BatchMessages: 2, BatchSeconds: 60})
	got, err := toldFiles(r, 100)
	if err != nil {
		t.Fatalf("rows %q, %v, want no error", got, err)
	}
	if err := r.Close(); err != nil {
		t.Fatalf("r.Close: %v, want no error", err)
	}
	want := []string{"1:1", "2:2", "-", "3:3", "4:4", "-", "5", "6", "-", "7:6", "8:7"}
	for i, w := range want {
		if i >= len(got) || got[i] != w && (len(w) > 1 || !strings.HasPrefix(got[i], " "+w+" ")) {
			t.Fatalf("%q, want %q", got, want)
		}
	}
	if p.unread("own") != 1 || len(got) != len(want) {
		t.Errorf("%d messages are unread and the rows are %q, want 1 and %q", p.unread("own"), got, want)
	}
	// Any other format is a file a message.
	p = newTopic(t, jetstream.LimitsPolicy)
	p.put("a.b", "timestamp,value\n1,1\n2,2\n")
	p.put("a.b", "value,timestamp\n3,3\n")
	r = p.open(fixture.Within(t), "csv", "csv", SubjectSpec{Messages: 2})
	defer r.Close()
	if got, err := told(r, 100); err != nil || strings.Join(got, " ") != "1:1 2:2 - 3:3" {
		t.Errorf("rows %q, %v, want the documents apart", got, err)
	}
}

// TestSubjectResume: an attempt that ends anywhere, before its messages are acknowledged or after,
// is followed by one that continues, whatever the stream does with what was acknowledged.
func TestSubjectResume(t *testing.T) {
	t.Parallel()
	for name, retention := range map[string]jetstream.RetentionPolicy{
		"limits": jetstream.LimitsPolicy,
		"queue":  jetstream.WorkQueuePolicy,
	} {
		t.Run(name, func(t *testing.T) {
			p := newTopic(t, retention)
			p.publish(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
			const want = "1:0 2:1 3:2 - 4:3 5:4 6:5 - 7:6 8:7 9:8 - 10:9"
			ctx := fixture.Within(t)
			spec := SubjectSpec{Messages: 10, BatchMessages: 3, BatchSeconds: 60}
			for _, lost := range []bool{false, true} {
				id := fmt.Sprint("resume-", lost)
				spec.Consumer = fmt.Sprint("c", lost)
				if lost && retention == jetstream.WorkQueuePolicy { // the other consumer has read it
					if err := p.stream.DeleteConsumer(ctx, "cfalse"); err != nil {
						t.Fatalf("stream.DeleteConsumer: %v, want no error", err)
					}
					p.publish(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
				}
				for stop := 1; ; stop++ {
					r := p.open(ctx, id, "", spec)
					if lost { // nothing that it reads is ever acknowledged
						r.src = deaf{r.src}
					}
					if readsPart(t, r, stop, want) {
						break
					}
					// An attempt that took messages and stored none of them.
					in, err := p.q.Streams.Subscribe(ctx, jobs.Subscription{
						Stream: "s", Subject: "a.*",
						Consumer: spec.Consumer, Keep: true, Ahead: 2,
					})
					if err != nil {
						t.Fatalf("Streams.Subscribe: %v, want no error", err)
					}
					if stop < 9 {
						if _, err := in.Next(ctx); err != nil {
							t.Fatalf("in.Next: %v, want no error", err)
						}
					}
					in.Close()
				}
			}
		})
	}
}

// deaf never hears that a document is stored.
type deaf struct{ fetcher }

// TestSubjectNext: with a named consumer, a job continues where the previous job ended; with new,
// only what is published from then on.
func TestSubjectNext(t *testing.T) {
	p, ctx := newTopic(t, jetstream.LimitsPolicy), fixture.Within(t)
	p.publish(1, 2, 3, 4, 5)
	for i, want := range []string{"1:1 2:2", "1:3 2:4"} {
		r := p.open(ctx, fmt.Sprint("next-", i), "", SubjectSpec{Messages: 2, Consumer: "kept"})
		got, err := told(r, 100)
		if cerr := r.Close(); err != nil || cerr != nil || strings.Join(got, " ") != want {
			t.Fatalf("rows %q, %v, close: %v, want %q", got, err, cerr, want)
		}
	}
	spec := SubjectSpec{Messages: 2, New: true}
	// An attempt ends before anything is published, one with a message that it has not stored.
	for i := range 2 {
		in, err := p.q.Streams.Subscribe(ctx, jobs.Subscription{
			Stream: "s", Subject: "a.*", Consumer: "own", New: true,
			Ahead: 1000,
		})
		if err != nil {
			t.Fatalf("Streams.Subscribe: %v, want no error", err)
		}
		if i == 1 {
			if m, err := in.Next(ctx); err != nil || m.Seq != 6 {
				t.Fatalf("message %+v, %v, want number 6", m, err)
			}
		}
		in.Close()
		if i == 0 {
			p.publish(6, 7)
		}
	}
	r := p.open(ctx, "new", "", spec)
	defer r.Close()
	if got, err := told(r, 100); err != nil || strings.Join(got, " ") != "1:6 2:7" {
		t.Fatalf("rows %q, %v, want 1:6 2:7", got, err)
	}
	f := r.src.(*subjectFetcher)
	if err := errors.Join(f.remove(ctx), f.remove(ctx)); err != nil {
		t.Errorf("joined errors: %v, want no error", err)
	}
	if _, err := p.stream.Consumer(ctx, "own"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
		t.Errorf("stream.Consumer: %v, want %v", err, jetstream.ErrConsumerNotFound)
	}
}

// TestSubjectEnds: its time, its context, and the end of the stream or consumer end a source that
// hears nothing.
func TestSubjectEnds(t *testing.T) {
	p := newTopic(t, jetstream.LimitsPolicy)
	r := p.open(fixture.Within(t), "time", "", SubjectSpec{For: 0.1})
	if got, err := told(r, 10); err != nil || len(got) != 0 {
		t.Errorf("rows %q, %v, want none", got, err)
	}
	_ = r.Close()
	ctx, cancel := context.WithCancelCause(fixture.Within(t))
	r = p.open(ctx, "context", "", SubjectSpec{Messages: 2, BatchMessages: 1})
	p.publish(1)
	if got, err := told(r, 2); err != nil || len(got) != 2 {
		t.Fatalf("rows %q, %v, want 2 before the wait", got, err)
	}
	done := make(chan error)
	go func() { _, err := told(r, 1); done <- err }()
	cancel(jobs.ErrFinish)
	if err := <-done; !errors.Is(err, jobs.ErrFinish) {
		t.Errorf("the wait ends with %v, want %v", err, jobs.ErrFinish)
	}
	_ = r.Close()
	// Another takes over, in the middle of its waiting.
	p.publish(2)
	r = p.open(fixture.Within(t), "taken", "", SubjectSpec{Messages: 9, BatchMessages: 1})
	if got, err := told(r, 2); err != nil || len(got) != 2 {
		t.Fatalf("rows %q, %v, want 2 before the wait", got, err)
	}
	go func() { _, err := told(r, 1); done <- err }()
	if err := p.q.Streams.Unsubscribe(fixture.Within(t), "s", "own"); err != nil {
		t.Fatalf("Streams.Unsubscribe: %v, want no error", err)
	}
	if err := p.js.DeleteStream(fixture.Within(t), "s"); err != nil {
		t.Fatalf("js.DeleteStream: %v, want no error", err)
	}
	if err := <-done; !errors.Is(err, jobs.ErrFenced) && !fixture.IsInput(err) {
		t.Errorf("without the stream: %v, want %v or an error of the input", err, jobs.ErrFenced)
	}
	_ = r.Close()
}

// TestSubjectRefuses: what cannot be read again, what belongs to the queue, and what has no end.
func TestSubjectRefuses(t *testing.T) {
	p := newTopic(t, jetstream.InterestPolicy)
	ends := SubjectSpec{Messages: 1}
	for uri, spec := range map[string]SubjectSpec{
		"nats:a.b": ends, "nats:/a.b": ends, "nats:s/": ends, "nats:s/a..b": ends, "nats:s/a b": ends,
		"nats:s.t/a": ends, "nats:s/a\r\nPUB": ends,
		"nats:s/a1": {}, "nats:s/a2": {Messages: 2e9}, "nats:s/a3": {For: -1},
		"nats:s/a4": {Messages: 1, BatchMessages: -1}, "nats:s/a5": {Messages: 1, BatchSeconds: 61},
		"nats:s/a6": {Messages: 1, Consumer: "a.b"},
	} {
		if _, err := newSubjectFetcher(uri, "", &spec, "own",
			Resources{Queue: p.q.StreamJobs(), AllowStream: func(string) error { return nil }}); err == nil {
			t.Errorf("%q: no error", uri)
		}
	}
	if _, err := p.js.CreateStream(fixture.Within(t),
		jetstream.StreamConfig{Name: "l", Subjects: []string{"l"}}); err != nil {
		t.Fatalf("js.CreateStream: %v, want no error", err)
	}
	if _, err := p.js.CreateConsumer(fixture.Within(t), "l",
		jetstream.ConsumerConfig{Durable: "other", FilterSubject: "l"}); err != nil {
		t.Fatalf("js.CreateConsumer: %v, want no error", err)
	}
	for uri, want := range map[string]string{
		"nats:none/a": "there is no stream none", "nats:s/a.b": "interest",
		"nats:EXO_JOBS_CPU/>": "belongs to the queue", "nats:KV_EXO_LEASES/>": "belongs to the queue",
		"nats:OBJ_EXO_OBJECTS/>": "belongs to the queue",
		"nats:l/m":               "correct the source",
	} {
		spec := ends
		f, err := newSubjectFetcher(uri, "", &spec, "own",
			Resources{Queue: p.q.StreamJobs(), AllowStream: func(string) error { return nil }})
		if err != nil {
			t.Fatalf("source %s: %v, want no error", uri, err)
		}
		doc := fixture.TempFile(t, nil)
		_, err = f.fetch(fixture.Within(t), position{}, "", doc)
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: f.fetch: %v, want code %v and %q in its text", uri, err, jobs.CodeInvalid, want)
		}
		_ = doc.Close()
		_ = f.close()
	}
}
