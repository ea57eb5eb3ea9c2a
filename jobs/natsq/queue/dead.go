package queue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Headers of a dead letter. Its body is the job's message as it came.
const (
	headerCode     = "Exo-Code"
	headerReason   = "Exo-Reason"
	headerAttempts = "Exo-Attempts"
	headerWorker   = "Exo-Worker"
)

// PutDeadLetter stores a dead letter, in the place of an earlier one of that job.
func (q *Queue) PutDeadLetter(ctx context.Context, t natsconn.RetryFunc, s wire.Source, id string, data []byte,
	cause *jobs.Error, attempts int, worker string,
) error {
	reason := strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, cause.Message)
	if len(reason) > natsconn.MaxReason {
		reason = strings.ToValidUTF8(reason[:natsconn.MaxReason], "")
	}
	m := &nats.Msg{Subject: s.Dead(id), Data: data, Header: nats.Header{
		headerCode: {string(cause.Code)}, headerReason: {reason}, headerAttempts: {strconv.Itoa(attempts)},
		headerWorker: {worker},
	}}
	q.conn.Inject(ctx, m)
	return q.conn.PublishMsg(ctx, t, "store the dead letter of job "+id, m)
}

func deadLetter(m *natsconn.Message) (jobs.DeadLetter, error) {
	parts := strings.Split(m.Subject, ".")
	if len(parts) != 6 {
		return jobs.DeadLetter{}, fmt.Errorf("dead letter %d on subject %s", m.Seq, m.Subject)
	}
	d := jobs.DeadLetter{
		Seq: m.Seq, Pool: jobs.Pool(parts[2]), Kind: parts[3], Tenant: parts[4], ID: parts[5], Died: m.Time,
		Data:   m.Data,
		Worker: m.Header.Get(headerWorker),
		Reason: &jobs.Error{Code: jobs.Code(m.Header.Get(headerCode)), Message: m.Header.Get(headerReason)},
	}
	d.Attempts, _ = strconv.Atoi(m.Header.Get(headerAttempts)) // 0 when a stranger wrote it
	return d, nil
}

// DeadLetters calls fn with the dead letters that f selects, oldest first, until fn returns false.
// It reads one at a time, so memory does not grow with their number.
func (q *Queue) DeadLetters(ctx context.Context, f jobs.DeadFilter, fn func(jobs.DeadLetter) bool) error {
	subject, err := deadSubject(f)
	if err != nil {
		return err
	}
	for seq := uint64(1); ; seq++ {
		var m *natsconn.Message
		err := q.conn.Retry(ctx, "read dead letters", func(ctx context.Context) (err error) {
			m, err = q.conn.NextOnce(ctx, wire.DeadStream, subject, seq)
			return err
		})
		if errors.Is(err, jobs.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		seq = m.Seq
		d, err := deadLetter(m)
		if err != nil {
			return err
		}
		if !fn(d) {
			return nil
		}
	}
}

func deadSubject(f jobs.DeadFilter) (string, error) {
	parts := []string{"exo", "dead", "*", "*", "*", "*"}
	for i, v := range []string{string(f.Pool), f.Kind, f.Tenant, f.ID} {
		if v == "" {
			continue
		}
		if err := jobs.CheckID("dead letter filter", v); err != nil {
			return "", err
		}
		parts[i+2] = v
	}
	return strings.Join(parts, "."), nil
}

// Redrive queues the job of a dead letter anew, under its id, and removes its failed result and the
// dead letter. A call that fails in the middle may be repeated. A letter that is no valid job
// cannot be redriven.
func (q *Queue) Redrive(ctx context.Context, d jobs.DeadLetter) error {
	j, err := jobs.DecodeJob(d.Data)
	if err != nil {
		return fmt.Errorf("redrive %s: %w", d.ID, err)
	}
	if j.ID != d.ID {
		return jobs.Errorf(jobs.CodeInvalid, "redrive %s: the letter holds a job with the id %q", d.ID, j.ID)
	}
	m, err := q.conn.Last(ctx, wire.ResultStream, wire.ResultSubject(j.ID))
	if err == nil {
		r, err := jobs.DecodeResult(m.Data)
		if err != nil {
			return err
		}
		if r.Status == jobs.Done { // it was done after all
			return q.removeLetter(ctx, d)
		}
		// By its place: who may remove one result need not be able to empty the stream.
		if err := q.conn.Remove(ctx, wire.ResultStream, m.Seq); err != nil {
			return err
		}
	} else if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	// What an earlier cancellation left would end it again, and a worker may hear of the job before
	// it hears of this.
	forgiven, err := q.uncancel(ctx, j.ID)
	if err != nil {
		return err
	}
	j.Deadline, j.NotBefore = time.Time{}, time.Time{} // both belong to the first life
	if d.Reason == nil || d.Reason.Code != jobs.CodeParent {
		j.After, j.OnFailedParent = nil, "" // it began, so its parents were over
	}
	if err := q.submit(ctx, j, forgiven, false); err != nil && !errors.Is(err, jobs.ErrExists) {
		return err
	}
	return q.removeLetter(ctx, d)
}

// HeaderForgiven of a job's message is the revision of the last cancellation that does not count
// for it.
const HeaderForgiven = "Exo-Forgiven"

// uncancel removes the cancellation of a job and returns its revision, 0 when there is none.
func (q *Queue) uncancel(ctx context.Context, id string) (forgiven uint64, err error) {
	m, err := q.conn.Last(ctx, "KV_"+wire.CancelBucket, "$KV."+wire.CancelBucket+"."+id)
	if errors.Is(err, jobs.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Seq, q.conn.Retry(ctx, "clear the cancellation of job "+id, func(ctx context.Context) error {
		kv, err := q.conn.JS.KeyValue(ctx, wire.CancelBucket)
		if err != nil {
			return err
		}
		return kv.Purge(ctx, id)
	})
}

// removeLetter removes the letter itself, not one that took its place since.
func (q *Queue) removeLetter(ctx context.Context, d jobs.DeadLetter) error {
	return q.conn.Remove(ctx, wire.DeadStream, d.Seq)
}

// PurgeDead removes the dead letters that f selects and returns their number.
func (q *Queue) PurgeDead(ctx context.Context, f jobs.DeadFilter) (uint64, error) {
	subject, err := deadSubject(f)
	if err != nil {
		return 0, err
	}
	return q.conn.Purge(ctx, wire.DeadStream, subject)
}
