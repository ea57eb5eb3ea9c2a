package natsq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

func benchServer(b *testing.B) (*server.Server, *natsq.Conn) {
	b.Helper()
	s, err := server.Start(b.Context(), server.Options{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(s.Close)
	c, err := natsq.Connect(b.Context(), natsq.Options{URL: s.URL()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	return s, c
}

func benchWork(b *testing.B, s *server.Server, o natsq.WorkerOptions) {
	b.Helper()
	c, err := natsq.Connect(b.Context(), natsq.Options{URL: s.URL()})
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

// BenchmarkRoundTrip: one small job, idle, from Submit to its result; raw is what JetStream alone takes for the same
// publish, fetch, publish and acknowledgement, each with an fsync.
func BenchmarkRoundTrip(b *testing.B) {
	b.Run("queue", func(b *testing.B) {
		s, c := benchServer(b)
		benchWork(b, s, natsq.WorkerOptions{Handlers: map[string]jobs.Handler{"k": func(context.Context, jobs.Job, func(any)) (any, error) { return 1, nil }}})
		for n := 0; b.Loop(); n++ {
			j := simple(fmt.Sprint("b", n), "k")
			if err := c.Submit(b.Context(), j); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Result(b.Context(), j.ID); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("raw", func(b *testing.B) {
		s, _ := benchServer(b)
		nc, err := nats.Connect(s.URL())
		if err != nil {
			b.Fatal(err)
		}
		defer nc.Close()
		js, err := jetstream.New(nc)
		if err != nil {
			b.Fatal(err)
		}
		st, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "RAW", Subjects: []string{"raw.*"}, Retention: jetstream.WorkQueuePolicy})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := js.CreateStream(b.Context(), jetstream.StreamConfig{Name: "OUT", Subjects: []string{"out.*"}}); err != nil {
			b.Fatal(err)
		}
		cons, err := st.CreateConsumer(b.Context(), jetstream.ConsumerConfig{Durable: "c", AckPolicy: jetstream.AckExplicitPolicy})
		if err != nil {
			b.Fatal(err)
		}
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
		for b.Loop() {
			if _, err := js.Publish(b.Context(), "raw.1", []byte("1")); err != nil {
				b.Fatal(err)
			}
			<-results
		}
	})
}

// BenchmarkBulk: small jobs submitted in batches and done in batches, results kept, until the queue is empty; ns/op is one job.
func BenchmarkBulk(b *testing.B) {
	s, c := benchServer(b)
	benchWork(b, s, natsq.WorkerOptions{Batches: map[string]natsq.Batch{"k": {Max: 256, Handle: func(_ context.Context, batch []jobs.Job, _ func(int, any)) ([]jobs.Outcome, error) {
		return make([]jobs.Outcome, len(batch)), nil
	}}}})
	spec := json.RawMessage(`"x"`)
	b.ResetTimer()
	for n := 0; n < b.N; {
		batch := make([]jobs.Job, min(jobs.MaxBatch, b.N-n))
		for i := range batch {
			batch[i] = simple(fmt.Sprint("b", n+i), "k")
			batch[i].Spec = spec
		}
		if err := c.SubmitBatch(b.Context(), batch); err != nil {
			b.Fatal(err)
		}
		n += len(batch)
	}
	for {
		st, err := c.Stats(b.Context(), jobs.PoolCPU)
		if err != nil {
			b.Fatal(err)
		}
		if st.Jobs == 0 {
			break
		}
		time.Sleep(200 * time.Millisecond) // a question syncs to disk too: rare ones disturb little
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
}
