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
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Resolution is the outcome of Resolve.
type Resolution int

const (
	waits Resolution = iota // some parents have not ended
	moved                   // the job does not wait any more
	ended                   // this call gave the job its result, so its own children may move
)

// Resolve checks the job that waits on a subject, and moves it on if its parents allow. Any number
// of processes may do so at the same time. over is the result of one parent, the only one that is
// checked; with nil all parents are checked.
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
		return moved, q.conn.Remove(ctx, wire.WaitStream, m.Seq) // no worker could execute it
	}
	j, err := decode(m)
	if err != nil || j.ID != id || wire.SourceOf(j) != s {
		j = jobs.Job{} // its worker makes a dead letter of it
	}
	// Its worker also ends a job past its deadline. Such a job still has edges.
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

// parents removes the edges to parents that have ended. left reports whether some have not, and
// failure is why the job must not run, or nil.
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
	// A process that removes an edge must check all edges afterwards. Then of several processes
	// that remove one each, the last sees that none is left. The check begins at a random edge:
	// from a fixed edge it could read all edges each time, if the parents end in the same order.
	from := rand.IntN(len(j.After))
	for k := range j.After {
		i := (from + k) % len(j.After)
		if there, err := q.edge(ctx, seq, i, j.After[i], j.ID); err != nil || there {
			return true, nil, err
		}
	}
	return false, nil, nil
}

// parent reports whether a parent has ended or is gone (known). why is the reason for which its
// children must not run, or nil.
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

// end gives a waiting job its result, because a parent has failed with why. In this order: result,
// dead letter, removal of the job. Each step may be repeated, so a later call finishes the work of
// a process that dies in between.
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
	if err == nil && NeedsLetter(r, false) {
		err = putLetter(ctx, q.conn, q.conn.RetryIdempotent, StoredLetter{
			Source: s, ID: j.ID, Data: m.Data, Reason: r.Error, Level: j.Level(),
		})
	}
	if err == nil {
		err = q.unwait(ctx, m, j.After)
	}
	if err != nil {
		return waits, err
	}
	if j.SpecRef != nil && !NeedsLetter(r, false) { // a redrive needs the specification
		_ = q.objects.DeleteObject(ctx, j.SpecRef.Name, jobs.Owner{}) // after an error the sweep removes it
	}
	return ended, nil
}

// Enqueue copies a waiting job into its queue, or among the delayed jobs until notBefore. The
// caller then removes it from the waiting ones. A second call has no effect: the subject is taken,
// the server remembers the message id, or the job has a result.
func (q *Queue) Enqueue(ctx context.Context, m *natsconn.Message, s wire.Source, id string, notBefore time.Time) error {
	if jobs.CheckID("job id", id) == nil { // a job with another id becomes a dead letter
		if _, err := q.results.Lookup(ctx, id); err == nil {
			return nil
		} else if !errors.Is(err, jobs.ErrNotFound) {
			return err
		}
	}
	// The job may have been withdrawn, and its edges removed, since it was read.
	if now, err := q.conn.Last(ctx, wire.WaitStream, m.Subject); errors.Is(err, jobs.ErrNotFound) || err == nil &&
		now.Seq != m.Seq {
		return nil
	} else if err != nil {
		return err
	}
	s, err := q.moveTo(ctx, s, m.Header)
	if err != nil {
		return err
	}
	out := &nats.Msg{Subject: s.Job(id), Data: m.Data, Header: nats.Header{}}
	copyLevel(out, m.Header)
	if f := m.Header.Get(HeaderForgiven); f != "" {
		out.Header.Set(HeaderForgiven, f)
	}
	natsconn.CopyTrace(out, m.Header)
	if notBefore.After(time.Now()) {
		j, _ := decode(m)
		err = q.schedule(ctx, j, s, out)
	} else if err = q.EnsureConsumer(ctx, s); err == nil {
		out.Header.Set(jetstream.MsgIDHeader, msgID(id, m.Seq))
		err = SubmitError("queue job "+id, q.conn.PublishMsg(ctx, q.conn.RetryIdempotent, "queue job "+id, out))
	}
	if errors.Is(err, jobs.ErrExists) {
		return nil
	}
	return err
}

// ResolveChildren resolves the jobs that wait for a job that has ended, and their children where
// that ends them too. The job must have its result.
func (q *Queue) ResolveChildren(ctx context.Context, id string) error {
	for over := []string{id}; len(over) > 0; over = over[1:] {
		var r *jobs.Result
		edges := wire.EdgeSubject(over[0], "*")
		for e, err := range q.conn.Each(ctx, "read "+edges, wire.WaitStream, edges, 1) {
			if err != nil {
				return err
			}
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
			case moved: // the job was moved or withdrawn, and its edge may be left
				if err := q.conn.Remove(ctx, wire.WaitStream, e.Seq); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// resolver is the consumer that the resolvers of all workers share.
const resolver = "resolver"

// Resolver moves waiting jobs on, for one worker: the children of a job that the worker has ended,
// and from time to time all waiting jobs. Every worker runs one. Its methods may be called from
// several goroutines.
type Resolver struct {
	c       *Queue
	log     *slog.Logger
	waiting atomic.Bool // jobs wait, as of the last count
	over    chan string // ids of jobs that the worker has ended
}

// maxEnded bounds the ids whose children are still to be resolved. A later pass over all waiting
// jobs finds the children of dropped ids.
const maxEnded = 4096

// NewResolver returns the resolver of one worker. It does nothing before Run.
func NewResolver(c *Queue, log *slog.Logger) *Resolver {
	return &Resolver{c: c, log: log, over: make(chan string, maxEnded)}
}

// JobEnded reports that a job has its result. It never blocks, and costs nothing while no job waits
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

// Run resolves jobs until ctx ends. Errors are logged and tried again.
func (d *Resolver) Run(ctx context.Context) {
	const workers = 4 // concurrent calls of Resolve, because each waits for the server
	var all sync.WaitGroup
	for range workers {
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

// look fetches waiting jobs and resolves them, until ctx ends.
//
// The request waits at the server instead of ending at once if nothing is pending. The server
// answers the latter from a count of pending messages, which drifts when messages are removed while
// they are delivered (nats-server 2.15.2). That happens here all the time: one random graph in some
// hundreds had a waiting job that was not seen for more than 10 s (measured).
func (d *Resolver) look(ctx context.Context) {
	const patience = time.Second // and the age of d.waiting, at most
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
			// Jobs that wait for long cost each worker at most 256 reads per second.
			select {
			case <-time.After(250*time.Millisecond - time.Since(began)):
			case <-ctx.Done():
			}
		}
	}
}

// pause logs an error and waits for a second, or until ctx ends.
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

// open makes the consumer, or finds it.
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

// count learns whether any job waits. It reads a message, because the stream has other messages
// too, and the count of the consumer is not reliable.
func (d *Resolver) count(ctx context.Context) error {
	_, err := d.c.conn.Next(ctx, wire.WaitStream, "exo.wait.>", 1)
	if err == nil || errors.Is(err, jobs.ErrNotFound) {
		d.waiting.Store(err == nil)
		return nil
	}
	return err
}

// one resolves one waiting job, and decides when it is looked at again: after a growing pause, but
// not later than its deadline.
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
		_ = m.Ack() // the job is gone from the stream; if the message is lost, the next pass finds that
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
