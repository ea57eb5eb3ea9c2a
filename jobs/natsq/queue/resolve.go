package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/deadletters"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Resolution is what a look at a waiting job found.
type Resolution int

const (
	waits Resolution = iota // parents are missing
	moved                   // it does not wait any more
	ended                   // it got its result by this look, so its own children may move
)

// Resolve looks at the job that waits on a subject and moves it on when its parents allow. Any
// number may do so at a time. over is the result of the one parent that is looked at; nil looks at
// all.
func (q *Queue) Resolve(ctx context.Context, subject string, over *jobs.Result) (Resolution, error) {
	m, err := q.conn.Last(ctx, wire.WaitStream, subject)
	if errors.Is(err, jobs.ErrNotFound) {
		return moved, nil
	}
	if err != nil {
		return waits, err
	}
	s, id, ok := wire.ParseSubject(subject)
	if !ok {
		return moved, q.conn.Remove(ctx, wire.WaitStream, m.Seq) // nobody could do it
	}
	j, err := jobs.DecodeJob(m.Data)
	if err != nil || j.ID != id || wire.SourceOf(j) != s {
		j = jobs.Job{} // its worker will say what is wrong with it
	}
	// One that is too late is ended by its worker too, and leaves edges.
	late := !j.Deadline.IsZero() && time.Now().After(j.Deadline)
	if !late {
		left, failure, err := q.parents(ctx, m.Seq, j, over)
		switch {
		case err != nil:
			return waits, err
		case failure != nil:
			return q.end(ctx, m, s, j, failure)
		case left:
			return waits, nil
		}
	}
	if err := q.Enqueue(ctx, m, s, id, j.NotBefore); err != nil {
		return waits, err
	}
	if late {
		return moved, q.unwait(ctx, m, j.After)
	}
	return moved, q.conn.Remove(ctx, wire.WaitStream, m.Seq)
}

// parents removes the edges of a job whose parents are over. left says that some are missing,
// failure why the job must not run.
func (q *Queue) parents(ctx context.Context, seq uint64, j jobs.Job,
	over *jobs.Result,
) (left bool, failure error, err error) {
	removed := false
	for i, p := range j.After {
		if over != nil && over.JobID != p {
			continue
		}
		there, err := q.edge(ctx, seq, i, p, j.ID)
		if err != nil {
			return false, nil, err
		}
		if !there {
			continue
		}
		known, why, err := q.parent(ctx, p, over)
		switch {
		case err != nil:
			return false, nil, err
		case !known:
			left = true
		case why == nil || j.OnFailedParent == jobs.RunChild:
			if err := q.conn.Remove(ctx, wire.WaitStream, edgeSeq(seq, i)); err != nil {
				return false, nil, err
			}
			removed = true
		default:
			return false, why, nil
		}
	}
	if over == nil && (!left || !removed) {
		return left, nil, nil
	}
	// Whoever removes an edge looks at all of them afterwards, so that of several who remove one
	// each the last sees that none is left. From anywhere: from one end a job whose parents end in
	// the order of that end would read all of them each time.
	from := rand.IntN(len(j.After))
	for k := range j.After {
		i := (from + k) % len(j.After)
		if there, err := q.edge(ctx, seq, i, j.After[i], j.ID); err != nil || there {
			return true, nil, err
		}
	}
	return false, nil, nil
}

// parent says whether a parent is over, or gone, and then why its children must not run, or nil.
func (q *Queue) parent(ctx context.Context, id string, over *jobs.Result) (known bool, why, err error) {
	r := over
	if r == nil {
		found, err := q.results.Lookup(ctx, id)
		var bad *jobs.Error
		switch {
		case errors.As(err, &bad):
			return true, fmt.Errorf("the result of %s cannot be read: %w", id, err), nil
		case errors.Is(err, jobs.ErrNotFound):
			there, err := q.Known(ctx, id)
			if err != nil || there {
				return false, nil, err
			}
			return true, fmt.Errorf("%s is gone: it was withdrawn, or its result has expired", id), nil
		case err != nil:
			return false, nil, err
		}
		r = &found
	}
	if r.Status == jobs.Done {
		return true, nil, nil
	}
	return true, fmt.Errorf("%s %s (%s): %s", id, r.Status, r.Error.Code, r.Error.Message), nil
}

// end gives a waiting job the result that a parent's end brings it.
func (q *Queue) end(ctx context.Context, m *natsconn.Message, s wire.Source, j jobs.Job,
	why error,
) (Resolution, error) {
	text := why.Error()
	if len(text) > natsconn.MaxReason {
		text = strings.ToValidUTF8(text[:natsconn.MaxReason], "") + " …"
	}
	r := jobs.Result{
		Version: jobs.Version, JobID: j.ID, Kind: j.Kind, Status: jobs.Failed, Finished: time.Now().UTC(),
		Error: jobs.Errorf(jobs.CodeParent, "job %s did not begin, because job %s", j.ID, text),
	}
	if j.OnFailedParent == jobs.SkipChild {
		r.Status, r.Error.Code = jobs.Skipped, jobs.CodeSkipped
	}
	ctx = q.conn.Extract(ctx, m.Header)
	first, err := q.results.Put(ctx, r, j.ResultTTL)
	if err == nil && !first {
		r, err = q.results.Lookup(ctx, j.ID)
	}
	if err == nil && deadletters.Needed(r) {
		err = q.letters.Put(ctx, q.conn.RetryIdempotent, deadletters.Letter{
			Source: s, ID: j.ID, Data: m.Data, Reason: r.Error,
		})
	}
	if err == nil {
		err = q.unwait(ctx, m, j.After)
	}
	if err != nil {
		return waits, err
	}
	if j.SpecRef != nil && !deadletters.Needed(r) { // a redrive needs it
		_ = q.objects.DeleteObject(ctx, j.SpecRef.Name, jobs.Owner{}) // else a sweep finds it
	}
	return ended, nil
}

// Enqueue publishes a waiting job to where it goes next. Twice is once: the subject is taken, the
// server remembers the message, or there is a result.
func (q *Queue) Enqueue(ctx context.Context, m *natsconn.Message, s wire.Source, id string, notBefore time.Time) error {
	if jobs.CheckID("job id", id) == nil { // another id becomes a dead letter
		if _, err := q.results.Lookup(ctx, id); err == nil {
			return nil
		} else if !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
	}
	// Withdrawn, and its edges removed, since it was read?
	if now, err := q.conn.Last(ctx, wire.WaitStream, m.Subject); errors.Is(err, jobs.ErrNotFound) || err == nil &&
		now.Seq != m.Seq {
		return nil
	} else if err != nil {
		return err
	}
	out := &nats.Msg{Subject: s.Job(id), Data: m.Data, Header: nats.Header{}}
	if f := m.Header.Get(HeaderForgiven); f != "" {
		out.Header.Set(HeaderForgiven, f)
	}
	natsconn.CopyTrace(out, m.Header)
	var err error
	if notBefore.After(time.Now()) {
		j, _ := jobs.DecodeJob(m.Data)
		err = q.schedule(ctx, j, out)
	} else if err = q.EnsureConsumer(ctx, s); err == nil {
		out.Header.Set(jetstream.MsgIDHeader, msgID(id, m.Seq))
		err = SubmitError("queue job "+id, q.conn.PublishMsg(ctx, q.conn.RetryIdempotent, "queue job "+id, out))
	}
	if errors.Is(err, jobs.ErrExists) {
		return nil
	}
	return err
}

// ResolveChildren looks at the jobs that wait for a job that is over, and at theirs where that ends
// them too.
func (q *Queue) ResolveChildren(ctx context.Context, id string) error {
	for over := []string{id}; len(over) > 0; over = over[1:] {
		var r *jobs.Result
		for seq := uint64(1); ; {
			e, err := q.conn.Next(ctx, wire.WaitStream, wire.EdgeSubject(over[0], "*"), seq)
			if errors.Is(err, jobs.ErrNotFound) {
				break
			}
			if err != nil {
				return err
			}
			seq = e.Seq + 1
			if r == nil {
				found, err := q.results.Lookup(ctx, over[0])
				if err != nil {
					return err
				}
				r = &found
			}
			subject := string(e.Data)
			child := e.Subject[strings.LastIndex(e.Subject, ".")+1:]
			_, waiting, ok := wire.ParseSubject(subject)
			f := moved
			if ok && waiting == child && strings.HasPrefix(subject, "exo.wait.") {
				if f, err = q.Resolve(ctx, subject, r); err != nil {
					return err
				}
			}
			switch f {
			case ended:
				over = append(over, child)
			case moved: // an edge that a withdrawn job has left
				if err := q.conn.Remove(ctx, wire.WaitStream, e.Seq); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// resolver is the consumer that all workers share to look at waiting jobs.
const resolver = "resolver"

// Resolver moves waiting jobs on, for one worker: those that wait for jobs that the worker ends,
// and now and then any.
type Resolver struct {
	c       *Queue
	log     *slog.Logger
	waiting atomic.Bool // there are waiting jobs, as far as known
	over    chan string // jobs that the worker has ended
}

// What does not fit is found by the resolver, a little later.
const dependentsLine = 4096

// NewResolver returns the resolver of one worker.
func NewResolver(c *Queue, log *slog.Logger) *Resolver {
	return &Resolver{c: c, log: log, over: make(chan string, dependentsLine)}
}

// JobEnded says that a job has its result. It never blocks, and costs nothing while no job waits
// for another.
func (d *Resolver) JobEnded(id string) {
	if !d.waiting.Load() {
		return
	}
	select {
	case d.over <- id:
	default:
	}
}

// Run works until ctx ends.
func (d *Resolver) Run(ctx context.Context) {
	const hands = 4 // looks under way at a time: they are round trips
	var all sync.WaitGroup
	for range hands {
		all.Go(func() {
			for {
				select {
				case id := <-d.over:
					if err := d.c.ResolveChildren(ctx, id); err != nil && ctx.Err() == nil {
						d.log.Warn("jobs that wait for another are looked at later", "job", id, "error", err)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	d.look(ctx)
	all.Wait()
}

// look asks the resolver what waits, until ctx ends.
//
// The request waits at the server instead of being answered at once where there is nothing: the
// server refuses the latter by a count of what is pending, which drifts where messages are removed
// while they are delivered (nats-server 2.15.2), as happens here all the time. One random graph in
// some hundreds had a waiting job that was not seen for longer than 10 s (measured).
func (d *Resolver) look(ctx context.Context) {
	const patience = time.Second // also how old the knowledge may be that nothing waits
	var cons jetstream.Consumer
	for ctx.Err() == nil {
		began := time.Now()
		if cons == nil {
			var err error
			if cons, err = d.open(ctx); err != nil {
				d.pause(ctx, "open the queue", err)
				continue
			}
		}
		if err := d.count(ctx); err != nil {
			d.pause(ctx, "count", err)
			continue
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		batch, err := cons.Fetch(64, jetstream.FetchContext(wait))
		again := false
		if err == nil {
			for m := range batch.Messages() {
				d.waiting.Store(true)
				d.one(context.WithoutCancel(ctx), m)
				if meta, err := m.Metadata(); err == nil && meta.NumDelivered > 1 {
					again = true
				}
			}
			err = batch.Error()
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout):
			cons = nil
			d.pause(ctx, "read", err)
		case again:
			// Many jobs that wait for long cost 256 looks a second at most in each worker.
			select {
			case <-time.After(250*time.Millisecond - time.Since(began)):
			case <-ctx.Done():
			}
		}
	}
}

// pause waits a second after an error.
func (d *Resolver) pause(ctx context.Context, what string, err error) {
	if ctx.Err() != nil {
		return
	}
	d.log.Warn("jobs that wait for others are not looked at", "at", what, "error", err)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
}

// open makes the resolver.
func (d *Resolver) open(ctx context.Context) (cons jetstream.Consumer, err error) {
	err = d.c.conn.Retry(ctx, "open the queue of waiting jobs", func(ctx context.Context) error {
		cons, err = d.c.conn.JS.CreateOrUpdateConsumer(ctx, wire.WaitStream, jetstream.ConsumerConfig{
			Durable: resolver, AckPolicy: jetstream.AckExplicitPolicy, AckWait: d.c.conn.Lease, MaxDeliver: -1,
			FilterSubject: "exo.wait.>", MaxAckPending: natsconn.MaxWaiting,
		})
		return err
	})
	return cons, err
}

// count learns whether anything waits. There are other messages in that stream, and the count of
// the consumer is not to be relied on.
func (d *Resolver) count(ctx context.Context) error {
	_, err := d.c.conn.Next(ctx, wire.WaitStream, "exo.wait.>", 1)
	if err == nil || errors.Is(err, jobs.ErrNotFound) {
		d.waiting.Store(err == nil)
		return nil
	}
	return err
}

func (d *Resolver) one(ctx context.Context, m jetstream.Msg) {
	subject := m.Subject()
	f, err := d.c.Resolve(ctx, subject, nil)
	if err == nil && f == ended {
		err = d.c.ResolveChildren(ctx, subject[strings.LastIndex(subject, ".")+1:])
	}
	if err != nil {
		d.log.Warn("waiting job is looked at later", "subject", subject, "error", err)
	}
	if err == nil && f != waits {
		_ = m.Ack() // it is gone from the stream; if this is lost, the next look finds that
		return
	}
	pause := lastPause
	if meta, merr := m.Metadata(); merr == nil {
		pause = Backoff(int(min(meta.NumDelivered, 7)))
	}
	if j, jerr := jobs.DecodeJob(m.Data()); jerr == nil && !j.Deadline.IsZero() {
		pause = max(FirstPause, min(pause, time.Until(j.Deadline)))
	}
	_ = m.NakWithDelay(pause)
}
