package queue

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// asBatch and asSingle fix how publishMany stores messages.
func asBatch(m *wire.PublishMode)  { m.Fix(true, time.Hour) }
func asSingle(m *wire.PublishMode) { m.Fix(false, time.Hour) }

// TestIntake: each of many concurrent submitters gets the answer of its own job, also if other jobs
// are queued, delayed, over, not valid, or submitted twice.
func TestIntake(t *testing.T) {
	for name, choose := range map[string]func(*wire.PublishMode){"as one": asBatch, "side by side": asSingle} {
		t.Run(name, func(t *testing.T) {
			c, _, ctx := queueOf(t, 0)
			choose(&c.batcher.mode)
			hand := func(id string, change func(*jobs.Job)) *jobs.Job {
				j := plain(id)
				if change != nil {
					change(&j)
				}
				return &j
			}
			queued := hand("queued", nil)
			delayed := hand("delayed", func(j *jobs.Job) { j.NotBefore = time.Now().Add(time.Hour) })
			for _, j := range []*jobs.Job{queued, delayed} {
				if err := c.Submit(ctx, *j); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := c.results.Put(ctx, jobs.Result{
				Version: jobs.Version, JobID: "over", Kind: "k",
				Status: jobs.Done,
			}, 60); err != nil {
				t.Fatal(err)
			}
			type answer struct {
				job  jobs.Job
				want error
			}
			var asked []answer
			for i := range 100 {
				asked = append(asked, answer{job: plain(fmt.Sprint("n", i))})
			}
			// Of another pool, kind and lane.
			asked = append(asked, answer{job: *hand("g", func(j *jobs.Job) { j.Pool = jobs.PoolGPU })},
				answer{job: *hand("k", func(j *jobs.Job) { j.Kind = "other" })},
				answer{job: *hand("l", func(j *jobs.Job) { j.Lane = jobs.High })})
			asked = append(asked, answer{plain("queued"), jobs.ErrExists}, answer{plain("delayed"), jobs.ErrExists},
				answer{plain("over"), jobs.ErrExists})
			// The sender is held while they all come, so that they are one group: in which only one
			// of a pool is sent at first.
			c.batcher.mu.Lock()
			c.batcher.busy = true
			c.batcher.mu.Unlock()
			errs := make([]error, len(asked))
			var callers sync.WaitGroup
			for i, a := range asked {
				callers.Go(func() { errs[i] = c.Submit(ctx, a.job) })
			}
			twice := make([]error, 2)
			for i := range twice {
				callers.Go(func() { twice[i] = c.Submit(ctx, plain("twice")) })
			}
			gone, leave := context.WithCancel(ctx)
			var goneErr error
			callers.Go(func() { goneErr = c.Submit(gone, plain("gone")) })
			for n := 0; n < len(asked)+3; {
				c.batcher.mu.Lock()
				n = len(c.batcher.waiting)
				c.batcher.mu.Unlock()
				if ctx.Err() != nil {
					t.Fatal("not all of them came")
				}
			}
			leave()
			c.batcher.send()
			callers.Wait()
			for i, a := range asked {
				if !errors.Is(errs[i], a.want) || a.want == nil && errs[i] != nil {
					t.Errorf("job %s: %v, want %v", a.job.ID, errs[i], a.want)
				}
			}
			if (twice[0] == nil) == (twice[1] == nil) || !errors.Is(errors.Join(twice...), jobs.ErrExists) {
				t.Errorf("one of two of the same id is stored: %v", twice)
			}
			if !errors.Is(goneErr, context.Canceled) {
				t.Errorf("whose caller has gone: %v", goneErr)
			}
			if _, err := c.conn.LastOnce(ctx, wire.JobStream(jobs.PoolCPU), "exo.job.cpu.*.*.*.gone"); !errors.Is(err,
				jobs.ErrNotFound) {
				t.Errorf("a job whose caller had gone before it was sent is stored: %v", err)
			}
			st, err := c.Stats(ctx, jobs.PoolCPU)
			if err != nil || st.Jobs != 100+2+1+1 { // new, of another kind and lane, queued before, twice
				t.Errorf("%d jobs are queued, %v", st.Jobs, err)
			}
		})
	}
}

// TestIntakeOrder: the jobs of one group stand in the queue in the order in which they came.
func TestIntakeOrder(t *testing.T) {
	for name, choose := range map[string]func(*wire.PublishMode){"as one": asBatch, "side by side": asSingle} {
		t.Run(name, func(t *testing.T) {
			c, _, ctx := queueOf(t, 0)
			choose(&c.batcher.mode)
			c.batcher.busy = true
			const n = 50
			var callers sync.WaitGroup
			for i := range n {
				callers.Go(func() {
					if err := c.Submit(ctx, plain(fmt.Sprint("j", i))); err != nil {
						t.Error(err)
					}
				})
				for came := 0; came <= i && ctx.Err() == nil; {
					c.batcher.mu.Lock()
					came = len(c.batcher.waiting)
					c.batcher.mu.Unlock()
				}
			}
			c.batcher.send()
			callers.Wait()
			for i := range n {
				m, err := c.conn.GetOnce(ctx, wire.JobStream(jobs.PoolCPU), map[string]any{"seq": i + 1})
				if want := wire.SourceOf(plain("")).Job(fmt.Sprint("j", i)); err != nil || m.Subject != want {
					t.Fatalf("job %d of the queue: %+v, %v, want %s", i, m, err, want)
				}
			}
		})
	}
}

// TestLostAnswer: messages whose answer was lost are not refused when they are sent again, however
// they were sent and are sent.
func TestLostAnswer(t *testing.T) {
	for name, choose := range map[string][2]func(*wire.PublishMode){
		"as one": {asBatch, asBatch}, "side by side": {asSingle, asSingle}, "first as one": {asBatch, asSingle},
		"first side by side": {asSingle, asBatch},
	} {
		t.Run(name, func(t *testing.T) {
			c, _, ctx := queueOf(t, 0)
			var msgs []*nats.Msg
			for i := range 20 {
				m, _, err := c.Prepare(ctx, plain(fmt.Sprint("j", i)))
				if err != nil {
					t.Fatal(err)
				}
				natsconn.SetMessageID(m)
				msgs = append(msgs, m)
			}
			for try := range 2 {
				choose[try](&c.batcher.mode)
				for i, err := range c.conn.PublishMany(ctx, c.conn.RetryUnlessFull, &c.batcher.mode, "submit", msgs) {
					if err != nil {
						t.Errorf("try %d of job %d: %v", try, i, err)
					}
				}
			}
			other, _, err := c.Prepare(ctx, plain("j7"))
			if err != nil {
				t.Fatal(err)
			}
			natsconn.SetMessageID(other)
			if exists, _ := natsconn.Rejected(c.conn.PublishMsg(ctx, c.conn.RetryIdempotent, "submit",
				other)); !exists {
				t.Error("somebody else's job of an id that is queued was stored")
			}
		})
	}
}

// TestLostAnswerOfBatch: a batch whose answer was lost is not refused when it is sent again, and
// the batch of another call with the same job is, whether it waits for others or not.
func TestLostAnswerOfBatch(t *testing.T) {
	c, _, ctx := queueOf(t, 0)
	lost := func(ctx context.Context, _ string, _ int, try func(context.Context) error) error {
		_ = try(ctx)
		return try(ctx)
	}
	for name, of := range map[string]func(wire.Source) (stream, subject string){
		"queued":  func(s wire.Source) (string, string) { return s.Stream(), s.Job("j") },
		"waiting": func(s wire.Source) (string, string) { return wire.WaitStream, s.Wait("j") },
	} {
		var msgs [2]*nats.Msg
		for i := range msgs {
			m, j, err := c.Prepare(ctx, plain("j"))
			if err != nil {
				t.Fatalf("Prepare: %v", err)
			}
			_, m.Subject = of(wire.SourceOf(j))
			msgs[i] = m
		}
		stream, _ := of(wire.SourceOf(plain("j")))
		if stored, err := c.publishOnce(ctx, lost, "submit", stream, msgs[:1]); !stored || err == nil {
			t.Errorf("%s: the own batch is stored: %v, error %v; want true and the refusal", name, stored, err)
		}
		stored, err := c.publishOnce(ctx, lost, "submit", stream, msgs[1:])
		if exists, _ := natsconn.Rejected(err); stored || !exists {
			t.Errorf("%s: the batch of another call is stored: %v, error %v", name, stored, err)
		}
	}
}
