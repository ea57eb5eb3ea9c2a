package natsq_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func benchServer(b *testing.B) (*server.Server, *natsq.Conn) {
	b.Helper()
	return benchProfile(b, false)
}

func benchProfile(b *testing.B, fast bool) (*server.Server, *natsq.Conn) {
	b.Helper()
	return benchTraced(b, fast, nil)
}

// discarded makes spans as a process does that exports them, and drops what would be sent.
func discarded(b *testing.B) trace.TracerProvider {
	b.Helper()
	p := sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()))
	b.Cleanup(func() {
		if err := p.Shutdown(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return p
}

func benchTraced(b *testing.B, fast bool, tracing trace.TracerProvider) (*server.Server, *natsq.Conn) {
	b.Helper()
	s, err := server.Start(b.Context(), server.Options{Dir: b.TempDir(), Fast: fast})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	c, err := natsq.Connect(b.Context(), natsconn.Options{URL: s.URL(), Tracing: tracing})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return s, c
}

func benchWork(b *testing.B, s *server.Server, o natsq.WorkerOptions) {
	b.Helper()
	benchWorkTraced(b, s, o, nil)
}

func benchWorkTraced(b *testing.B, s *server.Server, o natsq.WorkerOptions, tracing trace.TracerProvider) {
	b.Helper()
	c, err := natsq.Connect(b.Context(), natsconn.Options{URL: s.URL(), Tracing: tracing})
	if err != nil {
		b.Fatal(err)
	}
	o.Name, o.Pool, o.Logger = "w", jobs.PoolCPU, jobstest.Quiet
	w, err := c.Work(b.Context(), o)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { w.Stop(); c.Close() })
}

// BenchmarkRoundTrip: one small job, idle, from Submit to its result; raw is what JetStream alone
// takes for the same publish, fetch, publish and acknowledgement, each with an fsync. traced is
// queue with sampled spans of submitter and worker.
func BenchmarkRoundTrip(b *testing.B) {
	queue := func(b *testing.B, tracing trace.TracerProvider) {
		s, c := benchTraced(b, false, tracing)
		benchWorkTraced(b, s, natsq.WorkerOptions{Handlers: map[string]jobs.Handler{"k": func(context.Context, jobs.Job,
			func(any),
		) (any, error) {
			return 1, nil
		}}}, tracing)
		var took []time.Duration
		for n := 0; b.Loop(); n++ {
			began := time.Now()
			j := jobstest.Job(fmt.Sprint("b", n), "k")
			if err := c.Queue.Submit(b.Context(), j); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Results.Result(b.Context(), j.ID); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
		}
		spread(b, took)
	}
	b.Run("queue", func(b *testing.B) { queue(b, nil) })
	b.Run("traced", func(b *testing.B) { queue(b, discarded(b)) })
	b.Run("raw", func(b *testing.B) {
		s, _ := benchServer(b)
		js := jobstest.Raw(b, natsconn.Options{URL: s.URL()}).JS
		cons := benchStreams(b, js)
		results := make(chan struct{}, 1)
		it, err := cons.Consume(func(m jetstream.Msg) {
			_, perr := js.Publish(context.Background(), "out.1", m.Data())
			if aerr := m.Ack(); perr != nil || aerr != nil {
				b.Error(perr, aerr)
			}
			results <- struct{}{}
		})
		if err != nil {
			b.Fatal(err)
		}
		defer it.Stop()
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			if _, err := js.Publish(b.Context(), "raw.1", []byte("1")); err != nil {
				b.Fatal(err)
			}
			<-results
			took = append(took, time.Since(began))
		}
		spread(b, took)
	})
}

// spread reports percentiles, in microseconds.
func spread(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	for _, p := range []int{10, 50, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds()), fmt.Sprintf("p%d-us", p))
	}
}

// BenchmarkBulk: small jobs submitted in batches and done in batches, results kept, until the queue
// is empty; ns/op is one job. raw is what JetStream alone takes for the same atomic batches and an
// acknowledgement of each job.
func BenchmarkBulk(b *testing.B) {
	const atOnce = 256 // jobs of a fetch
	queue := func(b *testing.B, tracing trace.TracerProvider) {
		s, c := benchTraced(b, false, tracing)
		benchWorkTraced(b, s, natsq.WorkerOptions{Batches: map[string]natsq.Batch{"k": {
			Max: atOnce,
			Handle: func(_ context.Context, batch []jobs.Job, _ func(int, any)) ([]jobs.Outcome, error) {
				return make([]jobs.Outcome, len(batch)), nil
			},
		}}}, tracing)
		b.ResetTimer()
		for n := 0; n < b.N; {
			batch := make([]jobs.Job, min(jobs.MaxBatch, b.N-n))
			for i := range batch {
				batch[i] = jobstest.Job(fmt.Sprint("b", n+i), "k")
				batch[i].Spec = json.RawMessage(`"x"`)
			}
			if err := c.Queue.SubmitBatch(b.Context(), batch); err != nil {
				b.Fatal(err)
			}
			n += len(batch)
		}
		empty(b, s, "EXO_JOBS_CPU")
	}
	b.Run("queue", func(b *testing.B) { queue(b, nil) })
	b.Run("traced", func(b *testing.B) { queue(b, discarded(b)) })
	b.Run("raw", func(b *testing.B) {
		s, _ := benchServer(b)
		raw := jobstest.Raw(b, natsconn.Options{URL: s.URL()})
		nc, js := raw.NC, raw.JS
		cons := benchStreams(b, js)
		fetched := make(chan error, 1)
		go func() {
			for n := 0; n < b.N; {
				msgs, err := cons.Fetch(atOnce, jetstream.FetchMaxWait(10*time.Millisecond))
				if err != nil {
					fetched <- err
					return
				}
				var got []jetstream.Msg
				var results []*nats.Msg
				for m := range msgs.Messages() {
					got, results = append(got, m),
						append(results, &nats.Msg{Subject: fmt.Sprint("out.", n+len(got)), Data: m.Data()})
				}
				if len(got) == 0 {
					continue
				}
				if err := rawBatch(nc, results); err != nil {
					fetched <- err
					return
				}
				for _, m := range got {
					if err := m.Ack(); err != nil {
						fetched <- err
						return
					}
				}
				n += len(got)
			}
			fetched <- nil
		}()
		b.ResetTimer()
		for n := 0; n < b.N; {
			batch := make([]*nats.Msg, min(jobs.MaxBatch, b.N-n))
			for i := range batch {
				batch[i] = &nats.Msg{
					Subject: fmt.Sprint("raw.", n+i),
					Data:    []byte(`{"v":1,"id":"b","pool":"cpu","kind":"k","spec":"x"}`),
				}
			}
			if err := rawBatch(nc, batch); err != nil {
				b.Fatal(err)
			}
			n += len(batch)
		}
		if err := <-fetched; err != nil {
			b.Fatal(err)
		}
		empty(b, s, "RAW")
	})
}

// empty waits until a work queue is, and reports the rate.
func empty(b *testing.B, s *server.Server, stream string) {
	b.Helper()
	js := jobstest.Raw(b, natsconn.Options{URL: s.URL()}).JS
	testkit.Until(b, "the stream is empty", func() bool {
		st, err := js.Stream(b.Context(), stream)
		if err != nil {
			b.Fatal(err)
		}
		return st.CachedInfo().State.Msgs == 0
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}

// benchStreams makes a work queue RAW on raw.* and a stream OUT on out.*.
func benchStreams(b *testing.B, js jetstream.JetStream) jetstream.Consumer {
	b.Helper()
	st, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "RAW", Subjects: []string{"raw.*"},
		Retention: jetstream.WorkQueuePolicy, AllowAtomicPublish: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{
		Name: "OUT", Subjects: []string{"out.*"},
		AllowAtomicPublish: true,
	}); err != nil {
		b.Fatal(err)
	}
	cons, err := st.CreateConsumer(b.Context(), jetstream.ConsumerConfig{
		Durable:   "c",
		AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: 50_000,
	})
	if err != nil {
		b.Fatal(err)
	}
	return cons
}

// rawBatch publishes messages as one atomic batch.
func rawBatch(nc *nats.Conn, msgs []*nats.Msg) error {
	id := natsconn.NewID()
	for i, m := range msgs {
		m.Header = nats.Header{"Nats-Batch-Id": {id}, "Nats-Batch-Sequence": {strconv.Itoa(i + 1)}}
		if i < len(msgs)-1 {
			if err := nc.PublishMsg(m); err != nil {
				return err
			}
			continue
		}
		m.Header.Set("Nats-Batch-Commit", "1")
		ack, err := nc.RequestMsg(m, 30*time.Second)
		if err != nil {
			return err
		}
		if strings.Contains(string(ack.Data), `"error"`) {
			return errors.New(string(ack.Data))
		}
	}
	return nil
}
