package natsq_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// The open loop: this many jobs a second, independent of earlier jobs, into batches that close when
// they are full or after the linger.
const (
	openRate   = 5000
	openLinger = 2 * time.Millisecond
	openBatch  = 256
)

// openLoop sends b.N jobs at openRate and waits until each was in a batch. A job's latency is
// counted from when it was to be sent, so that a sender or a queue that falls behind shows.
type openLoop struct {
	b     *testing.B
	start time.Time

	mu   sync.Mutex
	hist *hdrhistogram.Histogram // microseconds
	left int
	seen []bool
	over chan struct{}
}

func newOpenLoop(b *testing.B) *openLoop {
	return &openLoop{
		b: b, hist: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3), left: b.N,
		seen: make([]bool, b.N), over: make(chan struct{}),
	}
}

// due is when job i is to be sent.
func (o *openLoop) due(i int) time.Time {
	return o.start.Add(time.Duration(i) * time.Second / openRate)
}

// closed notes that jobs are in a batch that has closed.
func (o *openLoop) closed(batch []int) {
	now := time.Now()
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, i := range batch {
		if o.seen[i] { // delivered twice
			continue
		}
		o.seen[i] = true
		if err := o.hist.RecordValue(max(1, now.Sub(o.due(i)).Microseconds())); err != nil {
			o.b.Error(err)
		}
		if o.left--; o.left == 0 {
			close(o.over)
		}
	}
}

// run calls send with the jobs that are due, from one goroutine, and reports when all are in
// batches.
func (o *openLoop) run(send func(from, to int)) {
	b := o.b
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	b.ResetTimer()
	before := processor(b)
	o.start = time.Now()
	for next := 0; next < b.N; {
		to := min(b.N, 1+int(time.Since(o.start)*openRate/time.Second))
		if to == next {
			<-time.After(time.Until(o.due(next))) // the load has a pace
			continue
		}
		send(next, to)
		next = to
	}
	select {
	case <-o.over:
	case <-ctx.Done():
		b.Fatalf("%d of %d jobs were in no batch", o.left, b.N)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "jobs/s")
	// other loads change it little
	b.ReportMetric(float64((processor(b)-before).Microseconds())/float64(b.N), "cpu-us/job")
	for _, p := range []float64{50, 99, 99.9} {
		b.ReportMetric(float64(o.hist.ValueAtQuantile(p))/1000, fmt.Sprintf("p%v-ms", p))
	}
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load, _ := strconv.ParseFloat(strings.Fields(string(text))[0], 64)
		b.ReportMetric(load, "load")
	}
}

// processor is the processor time of the process so far: server, submitter and worker.
func processor(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkOpenLoop: from when a job is to be submitted to when its batch closes, at a fixed rate.
// single submits each job by itself; group submits the jobs that are due while the last two groups
// are in flight as one group; raw is what JetStream alone does with a publication for each, a
// prefetching consumer and a batcher, without results.
func BenchmarkOpenLoop(b *testing.B) {
	for _, profile := range []string{"durable", "fast"} {
		fast := profile == "fast"
		b.Run(profile+"/single", func(b *testing.B) { benchOpen(b, fast, openSingle) })
		b.Run(profile+"/group", func(b *testing.B) { benchOpen(b, fast, openGroup) })
		b.Run(profile+"/raw", func(b *testing.B) { benchOpenRaw(b, fast) })
	}
}

// benchOpen runs the loop against a worker. submit returns what sends jobs, and what waits until
// they are submitted.
func benchOpen(b *testing.B, fast bool, submit func(b *testing.B, c *natsq.Conn) (send func(from, to int),
	wait func()),
) {
	s, c := benchProfile(b, fast)
	o := newOpenLoop(b)
	benchWork(b, s, natsq.WorkerOptions{Batches: map[string]natsq.Batch{"k": {
		Max: openBatch, Linger: openLinger,
		Handle: func(_ context.Context, batch []jobs.Job, _ func(int, any)) ([]jobs.Outcome, error) {
			all := make([]int, len(batch))
			for k, j := range batch {
				if err := json.Unmarshal(j.Spec, &all[k]); err != nil {
					return nil, err
				}
			}
			o.closed(all)
			return make([]jobs.Outcome, len(batch)), nil
		},
	}}})
	send, wait := submit(b, c)
	o.run(send)
	wait()
}

func openJob(i int) jobs.Job {
	j := jobstest.Job(fmt.Sprint("b", i), "k")
	j.Spec = json.RawMessage(strconv.Itoa(i))
	return j
}

func openSingle(b *testing.B, c *natsq.Conn) (send func(from, to int), wait func()) {
	var all sync.WaitGroup
	return func(from, to int) {
		for i := from; i < to; i++ {
			all.Go(func() {
				if err := c.Queue.Submit(b.Context(), openJob(i)); err != nil {
					b.Error(err)
				}
			})
		}
	}, all.Wait
}

func openGroup(b *testing.B, c *natsq.Conn) (send func(from, to int), wait func()) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var group []jobs.Job // due and not sent
	slots := make(chan struct{}, 2)
	take := func() (batch []jobs.Job) {
		mu.Lock()
		defer mu.Unlock()
		batch = group[:min(len(group), jobs.MaxBatch)]
		group = group[len(batch):]
		return batch
	}
	return func(from, to int) {
		mu.Lock()
		for i := from; i < to; i++ {
			group = append(group, openJob(i))
		}
		mu.Unlock()
		select {
		case slots <- struct{}{}:
		default:
			return // who is under way takes them
		}
		all.Go(func() {
			defer func() { <-slots }()
			for batch := take(); len(batch) > 0; batch = take() {
				if err := c.Queue.SubmitBatch(b.Context(), batch); err != nil {
					b.Error(err)
				}
			}
		})
	}, all.Wait
}

func benchOpenRaw(b *testing.B, fast bool) {
	s, _ := benchProfile(b, fast)
	raw := jobstest.Raw(b, natsconn.Options{URL: s.URL()})
	nc, js := raw.NC, raw.JS
	sub := jobstest.Raw(b, natsconn.Options{URL: s.URL()}).JS
	benchStreams(b, js)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(b.N+1)) // an open loop does not wait
	if err != nil {
		b.Fatal(err)
	}
	cons, err := sub.Consumer(b.Context(), "RAW", "c")
	if err != nil {
		b.Fatal(err)
	}
	o := newOpenLoop(b)
	msgs := make(chan jetstream.Msg, 2*openBatch)
	it, err := cons.Consume(func(m jetstream.Msg) { msgs <- m }, jetstream.PullMaxMessages(2*openBatch))
	if err != nil {
		b.Fatal(err)
	}
	stop := make(chan struct{})
	var batcher sync.WaitGroup
	batcher.Go(func() {
		var batch []jetstream.Msg
		linger := time.NewTimer(time.Hour)
		defer linger.Stop()
		for {
			select {
			case m := <-msgs:
				if batch = append(batch, m); len(batch) == 1 {
					linger.Reset(openLinger)
				}
				if len(batch) < openBatch {
					continue
				}
			case <-linger.C:
			case <-stop:
				return
			}
			all := make([]int, len(batch))
			for k, m := range batch {
				all[k], _ = strconv.Atoi(string(m.Data()))
			}
			o.closed(all)
			for _, m := range batch {
				if err := m.Ack(); err != nil {
					b.Error(err)
				}
			}
			batch = nil
		}
	})
	o.run(func(from, to int) {
		for i := from; i < to; i++ {
			if _, err := js.PublishAsync(fmt.Sprint("raw.", i), []byte(strconv.Itoa(i)),
				jetstream.WithMsgID(strconv.Itoa(i))); err != nil {
				b.Error(err)
			}
		}
	})
	<-js.PublishAsyncComplete()
	it.Stop()
	close(stop)
	batcher.Wait()
}
