package queue

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Submit stores a job and returns when it is stored. It fails with jobs.ErrExists if a job of that
// id is queued, running or has ended, and with jobs.ErrFull if the queue or the tenant has no room;
// jobs.RetryAfter returns when to try again. The call may be repeated after jobs.ErrUnavailable.
//
// A queued job is compared with jobs of its kind, lane and tenant only. A second job of its id with
// another kind, lane or tenant runs too, and so does one without parents while a job of its id
// waits for others. The first result of the id is final.
func (q *Queue) Submit(ctx context.Context, j jobs.Job) error { return q.SubmitNew(ctx, j, false) }

// SubmitNew is Submit. made says that the id was made for this call, which saves the search for
// other jobs of the id.
func (q *Queue) SubmitNew(ctx context.Context, j jobs.Job, made bool) error {
	if err := q.limits.Admit(ctx, j); err != nil {
		return fmt.Errorf("submit job %s: %w", j.ID, err)
	}
	return q.submit(ctx, j, redrive{}, made)
}

// submit is SubmitNew without the limits of the tenant. again is the zero value for a new job.
func (q *Queue) submit(ctx context.Context, j jobs.Job, again redrive, made bool) (err error) {
	ctx, span := q.StartSubmit(ctx, j)
	defer func() { natsconn.EndSpan(span, err) }()
	what := "submit job " + j.ID
	if len(j.After) > 0 {
		return q.submitGraph(ctx, what, []jobs.Job{j}, again)
	}
	m, j, err := q.Prepare(ctx, j)
	if err != nil {
		return err
	}
	again.mark(m)
	s := sourceOf(j, m)
	if j.NotBefore.After(time.Now()) {
		if !made {
			if err := q.unknown(ctx, j, s); err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
		}
		return q.schedule(ctx, j, s, m)
	}
	if err := q.EnsureConsumer(ctx, s); err != nil {
		return err
	}
	return q.batcher.submit(ctx, &submission{what: what, job: j, source: s, m: m, made: made})
}

// SubmitError returns err as the error of a submission: jobs.ErrExists if the stream has the id,
// and jobs.ErrFull if the stream is full. The text begins with what.
func SubmitError(what string, err error) error {
	if exists, full := natsconn.Rejected(err); exists {
		return fmt.Errorf("%s: %w", what, jobs.ErrExists)
	} else if full {
		return fmt.Errorf("%s: %w: wait for workers to catch up, or start more", what, jobs.ErrFull)
	}
	return err
}

// SubmitBatch stores at most jobs.MaxBatch jobs of one pool, all or none, and returns when they are
// stored. If a job of the batch exists, none is stored, and the error is jobs.ErrExists with its
// id.
//
// A batch may contain jobs with parents, in any order. Then its jobs may be of both pools and
// delayed, and the jobs and their parents together are at most jobs.MaxBatch. In a batch without
// parents no job may be delayed, and a delayed job of the same id is not noticed: the id then runs
// now, and its first result is final.
func (q *Queue) SubmitBatch(ctx context.Context, batch []jobs.Job) (err error) {
	if len(batch) == 0 {
		return nil
	}
	ctx, span := q.StartSubmit(ctx, batch...)
	defer func() { natsconn.EndSpan(span, err) }()
	if len(batch) > jobs.MaxBatch {
		return jobs.Errorf(jobs.CodeInvalid, "a batch of %d jobs: at most %d are submitted as one", len(batch),
			jobs.MaxBatch)
	}
	what := fmt.Sprintf("submit %d jobs", len(batch))
	if err := q.limits.Admit(ctx, batch...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if slices.ContainsFunc(batch, func(j jobs.Job) bool { return len(j.After) > 0 }) {
		return q.submitGraph(ctx, what, batch, redrive{})
	}
	msgs := make([]*nats.Msg, len(batch))
	sources := make([]wire.Source, len(batch))
	seen := make(map[string]bool, len(batch))
	now := time.Now()
	for i, j := range batch {
		switch {
		case j.Pool != batch[0].Pool:
			return jobs.Errorf(jobs.CodeInvalid, "job %s is for pool %q, the batch for %q: submit them apart", j.ID,
				j.Pool, batch[0].Pool)
		case j.NotBefore.After(now):
			return jobs.Errorf(jobs.CodeInvalid, "job %s is delayed: submit it alone", j.ID)
		case j.Level() != batch[0].Level():
			return jobs.Errorf(jobs.CodeInvalid, "job %s asks for another level than job %s of the batch: submit jobs "+
				"of different replicas and durability apart", j.ID, batch[0].ID)
		case seen[j.ID]:
			return fmt.Errorf("%s: job %s is in the batch twice: %w", what, j.ID, jobs.ErrExists)
		}
		seen[j.ID] = true
		m, j, err := q.Prepare(ctx, j)
		if err != nil {
			return err
		}
		s := sourceOf(j, m)
		if err := q.EnsureConsumer(ctx, s); err != nil {
			return err
		}
		msgs[i], sources[i] = m, s
	}
	if err := q.noResults(ctx, batch, sources); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	stored, err := q.publishOnce(ctx, q.conn.RetryUnlessFull, what, sources[0].Stream(), msgs)
	if exists, _ := natsconn.Rejected(err); exists {
		found, first, ferr := q.countKnown(ctx, batch, sources)
		if ferr != nil {
			return fmt.Errorf("%s: %w", what, ferr)
		}
		if stored && found == len(batch) {
			return nil
		}
		return fmt.Errorf("%s: none was stored, because job %s exists: %w", what, first, jobs.ErrExists)
	}
	return SubmitError(what, err)
}

// publishOnce stores messages of a stream, all or none. If the server refuses a try because an
// earlier one has stored them and its acknowledgement was lost, stored is true. A first message
// that is gone by then counts as stored by this call: its job has been taken.
func (q *Queue) publishOnce(ctx context.Context, t natsconn.RetryFunc, what, stream string, msgs []*nats.Msg,
) (stored bool, err error) {
	id := natsconn.NewID()
	natsconn.SetHeader(msgs[0], wire.HeaderSubmission, id)
	unsure, err := q.conn.PublishBatch(ctx, t, what, msgs)
	if exists, _ := natsconn.Rejected(err); !exists || !unsure {
		return false, err
	}
	m, merr := q.conn.Last(ctx, stream, msgs[0].Subject)
	if merr != nil && !errors.Is(merr, jobs.ErrNotFound) {
		return false, fmt.Errorf("%s: %w", what, merr)
	}
	return merr != nil || m.Header.Get(wire.HeaderSubmission) == id, err
}

// each calls fn for every job concurrently, and returns the first error in the order of the batch.
// All calls have returned then.
func each(batch []jobs.Job, fn func(jobs.Job) error) error {
	// Concurrent requests: enough to hide the round trip, and few enough to leave room on the
	// connection for other calls.
	const together = 64
	errs := make([]error, len(batch))
	slots := make(chan struct{}, together)
	var all sync.WaitGroup
	for i, j := range batch {
		slots <- struct{}{}
		all.Go(func() { errs[i] = fn(j); <-slots })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// noResults fails with jobs.ErrExists if one of the jobs has a result, or is queued at another
// level. One request is enough in most cases.
func (q *Queue) noResults(ctx context.Context, batch []jobs.Job, sources []wire.Source) error {
	if levels, err := q.conn.JobLevels(ctx, batch[0].Pool, natsconn.LevelsAge); err != nil {
		return err
	} else if len(levels) > 0 {
		at := make(map[string]wire.Source, len(batch))
		for i, j := range batch {
			at[j.ID] = sources[i]
		}
		if err := each(batch, func(j jobs.Job) error { return q.elsewhere(ctx, at[j.ID], j.ID) }); err != nil {
			return err
		}
	}
	if q.results.NoneAtOnce(ctx, batch) {
		return nil
	}
	return each(batch, func(j jobs.Job) error { return q.fresh(ctx, jobs.Job{ID: j.ID}) })
}

// countKnown counts the jobs that are queued or have ended, and returns the id of the first of them
// in the batch.
func (q *Queue) countKnown(ctx context.Context, batch []jobs.Job,
	sources []wire.Source,
) (n int, first string, err error) {
	at := make(map[string]wire.Source, len(batch))
	for i, j := range batch {
		at[j.ID] = sources[i]
	}
	return count(batch, func(j jobs.Job) (bool, error) {
		err := q.fresh(ctx, jobs.Job{ID: j.ID})
		if err == nil {
			_, err = q.conn.Last(ctx, at[j.ID].Stream(), at[j.ID].Job(j.ID))
			if errors.Is(err, jobs.ErrNotFound) {
				return false, nil
			}
			return err == nil, err
		}
		if errors.Is(err, jobs.ErrExists) {
			return true, nil
		}
		return false, err
	})
}

// unknown fails with jobs.ErrExists if a job has a result, is delayed, or is queued at another
// level than s. The stream of s itself refuses a job that is queued.
func (q *Queue) unknown(ctx context.Context, j jobs.Job, s wire.Source) error {
	held := make(chan error, 1)
	go func() { // concurrently: two round trips in turn would take half of the time of a submission
		_, err := q.conn.Last(ctx, wire.SchedStream, "exo.*."+s.Tail()+"."+j.ID)
		held <- err
	}()
	err := q.fresh(ctx, j)
	herr := <-held
	switch {
	case err != nil:
		return err
	case herr == nil:
		return fmt.Errorf("job %s is delayed: %w", j.ID, jobs.ErrExists)
	case errors.Is(herr, jobs.ErrNotFound):
		return q.elsewhere(ctx, s, j.ID)
	}
	return herr
}

// fresh fails with jobs.ErrExists if a job of that id has a result.
func (q *Queue) fresh(ctx context.Context, j jobs.Job) error {
	_, err := q.results.Lookup(ctx, j.ID)
	switch {
	case err == nil:
		return fmt.Errorf("job %s has a result: %w", j.ID, jobs.ErrExists)
	case errors.Is(err, jobs.ErrNotFound):
		return nil
	}
	return err
}

// sourceOf returns the source of a job whose message Prepare has made.
func sourceOf(j jobs.Job, m *nats.Msg) wire.Source {
	if j.Level() != "" {
		s, _, _ := wire.ParseSubject(m.Subject)
		return s
	}
	return wire.SourceOf(j)
}

// Prepare returns the message of a job and the job with its defaults. The subject of the message is
// in the queue, at the level that the cluster gives the job; a level that it cannot give is
// refused. A specification of more than jobs.MaxInline bytes is stored as an object. The caller
// publishes the message.
func (q *Queue) Prepare(ctx context.Context, j jobs.Job) (*nats.Msg, jobs.Job, error) {
	j = j.WithDefaults()
	if err := j.Validate(); err != nil {
		return nil, j, err
	}
	s, err := q.grant(ctx, j)
	if err != nil {
		return nil, j, fmt.Errorf("submit job %s: %w", j.ID, err)
	}
	if len(j.Spec) > jobs.MaxInline {
		ref, err := q.putSpec(ctx, j)
		if err != nil {
			return nil, j, err
		}
		j.Spec, j.SpecRef = nil, ref
	}
	body := j
	body.Replicas, body.Durability = 0, ""
	data, err := json.Marshal(body)
	if err != nil {
		return nil, j, fmt.Errorf("submit job %s: %w", j.ID, err)
	}
	if err := jobs.CheckJSON(data); err != nil {
		return nil, j, fmt.Errorf("submit job %s: %w", j.ID, err)
	}
	m := &nats.Msg{Subject: s.Job(j.ID), Data: data}
	if l := j.Level(); l != "" {
		natsconn.SetHeader(m, wire.HeaderLevel, string(l))
	}
	if j.Waited {
		natsconn.SetHeader(m, wire.HeaderWaited, "1")
	}
	q.conn.Inject(ctx, m)
	return m, j, nil
}

// putSpec stores a specification as an object. The name is made of the id and the content, so the
// object is of this job only, and a repeated call stores the same object.
func (q *Queue) putSpec(ctx context.Context, j jobs.Job) (*jobs.ObjectRef, error) {
	sum := sha256.Sum256(j.Spec)
	ref := &jobs.ObjectRef{SHA256: hex.EncodeToString(sum[:]), Size: int64(len(j.Spec))}
	ref.Name = "spec-" + j.ID + "-" + ref.SHA256
	// The name is not one of the tenant's, so no job can read the object as a source.
	_, err := q.objects.PutNamed(ctx, ref.Name, jobs.OwnerOf(j), bytes.NewReader(j.Spec))
	if natsconn.IsNoSpace(err) {
		err = natsconn.NoSpaceError("store the spec of job " + j.ID)
	}
	return ref, err
}

// Spec reads a specification that Prepare stored, and checks its length and digest. The error can
// be retried (jobs.Retryable) unless the object is gone or has another content.
func (q *Queue) Spec(ctx context.Context, ref *jobs.ObjectRef) ([]byte, error) {
	r, err := q.objects.OpenNamed(ctx, ref.Name)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil, jobs.Errorf(jobs.CodeInvalid, "its spec is not in the object store any more: %s: submit it again",
			ref.Name)
	}
	if err != nil {
		return nil, jobs.Retry(err)
	}
	data, err := io.ReadAll(io.LimitReader(r, ref.Size+1))
	if cerr := r.Close(); err == nil && int64(len(data)) <= ref.Size {
		err = cerr
	}
	if err != nil {
		return nil, jobs.Retry(fmt.Errorf("read spec %s: %w", ref.Name, err))
	}
	sum := sha256.Sum256(data)
	if int64(len(data)) != ref.Size || hex.EncodeToString(sum[:]) != ref.SHA256 {
		return nil, jobs.Errorf(jobs.CodeInvalid, "object %s is not what its reference says: %d bytes with sha256 "+
			"%x, want %d with %s", ref.Name, len(data), sum, ref.Size, ref.SHA256)
	}
	if err := checkSpec(data); err != nil {
		return nil, err
	}
	return data, nil
}

// checkSpec returns an error unless a specification is JSON.
func checkSpec(data []byte) error {
	if !json.Valid(data) {
		return jobs.Errorf(jobs.CodeInvalid, "the spec in the object store is not JSON")
	}
	return nil
}

// EnsureConsumer makes the consumer of a source, unless this connection has seen it. Forget makes
// the next call ask the server again.
func (q *Queue) EnsureConsumer(ctx context.Context, s wire.Source) error {
	if _, ok := q.sources.Load(s); ok {
		return nil
	}
	what := fmt.Sprintf("open queue %s", s.Tail())
	err := q.conn.Retry(ctx, what, func(ctx context.Context) error {
		_, err := q.conn.JS.CreateOrUpdateConsumer(ctx, s.Stream(), jetstream.ConsumerConfig{
			Durable:   s.Consumer(),
			AckPolicy: jetstream.AckExplicitPolicy,
			AckWait:   q.conn.Lease,
			// The worker counts the attempts, so that the last one can leave a result.
			MaxDeliver:    -1,
			FilterSubject: s.Job("*"),
			MaxAckPending: maxUnacked,
			MaxWaiting:    512,
			// The server removes the consumer of a kind that no worker serves. Its jobs stay, and a
			// worker of that kind makes the consumer again.
			InactiveThreshold: consumerIdle,
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	q.sources.Store(s, true)
	return nil
}

// consumerIdle is how long the server keeps a consumer that no worker asks. It also waits for
// outstanding acknowledgements (nats-server 2.12 and later), so a long job keeps its consumer.
const consumerIdle = time.Hour

// maxUnacked is how many jobs of a source may be with workers or wait for a retry. The server keeps
// about 100 bytes of memory for each. Workers hold a few hundred.
const maxUnacked = 50_000
