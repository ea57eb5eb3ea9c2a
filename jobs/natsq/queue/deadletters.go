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

// Headers of a dead letter. Its body is the message of the job, byte for byte.
const (
	headerCode     = "Exo-Code"
	headerReason   = "Exo-Reason"
	headerAttempts = "Exo-Attempts"
	headerWorker   = "Exo-Worker"
)

// DeadLetters reads and writes the dead letters of all pools. The stream keeps one letter per pool,
// kind, tenant and id; a later letter of the same job replaces it. The methods may be called from
// several goroutines.
type DeadLetters struct {
	conn  *natsconn.Conn
	queue *Queue // for Redrive alone
}

// NewDeadLetters returns the dead letters that a connection reaches. The connection stays the
// caller's.
func NewDeadLetters(c *natsconn.Conn, q *Queue) *DeadLetters { return &DeadLetters{c, q} }

// StoredLetter is a dead letter before it is stored.
type StoredLetter struct {
	Source   wire.Source
	ID       string // the last token of its subject; a valid job id
	Data     []byte // the message of the job
	Reason   *jobs.Error
	Attempts int        // 0 for a job that did not begin
	Worker   string     // empty for a job that did not begin
	Level    jobs.Level // that the job asked for
}

// NeedsLetter reports whether a job with this result becomes a dead letter. A job that was
// cancelled or missed its deadline does not. Neither does a job whose submitter waits for it
// (waited) and must act, because the job or its data are wrong.
func NeedsLetter(r jobs.Result, waited bool) bool {
	if r.Status != jobs.Failed {
		return false
	}
	switch r.Error.Code {
	case jobs.CodeCanceled, jobs.CodeDeadline:
		return false
	case jobs.CodeInvalid, jobs.CodeInput:
		return !waited
	}
	return true
}

// Put stores a letter and replaces an earlier one of the same job. The caller must have stored the
// result of the job before, if the id is valid, and must remove the job from its queue afterwards.
// retry decides how often the server is asked. The reason is cut to natsconn.MaxReason bytes,
// because it is a header.
func (s *DeadLetters) Put(ctx context.Context, retry natsconn.RetryFunc, l StoredLetter) error {
	return putLetter(ctx, s.conn, retry, l)
}

// putLetter is DeadLetters.Put. The queue calls it for children of failed jobs.
func putLetter(ctx context.Context, c *natsconn.Conn, retry natsconn.RetryFunc, l StoredLetter) error {
	reason := strings.Map(func(r rune) rune {
		if r == '\r' || r == '\n' {
			return ' '
		}
		return r
	}, l.Reason.Message)
	if len(reason) > natsconn.MaxReason {
		reason = strings.ToValidUTF8(reason[:natsconn.MaxReason], "")
	}
	m := &nats.Msg{Subject: l.Source.Dead(l.ID), Data: l.Data, Header: nats.Header{
		headerCode: {string(l.Reason.Code)}, headerReason: {reason}, headerAttempts: {strconv.Itoa(l.Attempts)},
		headerWorker: {l.Worker},
	}}
	if l.Level != "" {
		m.Header.Set(wire.HeaderLevel, string(l.Level))
	}
	c.Inject(ctx, m)
	return c.PublishMsg(ctx, retry, "store the dead letter of job "+l.ID, m)
}

// decodeLetter reads a stored letter. Any client with the permission may have written it, so a
// number that is not one counts as 0 attempts.
func decodeLetter(m *natsconn.Message) (jobs.DeadLetter, error) {
	parts := strings.Split(m.Subject, ".")
	if len(parts) != 6 {
		return jobs.DeadLetter{}, fmt.Errorf("dead letter %d on subject %s", m.Seq, m.Subject)
	}
	d := jobs.DeadLetter{
		Seq: m.Seq, Pool: jobs.Pool(parts[2]), Kind: parts[3], Tenant: parts[4], ID: parts[5], Died: m.Time,
		Data:   m.Data,
		Level:  jobs.Level(m.Header.Get(wire.HeaderLevel)),
		Worker: m.Header.Get(headerWorker),
		Reason: &jobs.Error{Code: jobs.Code(m.Header.Get(headerCode)), Message: m.Header.Get(headerReason)},
	}
	d.Attempts, _ = strconv.Atoi(m.Header.Get(headerAttempts))
	return d, nil
}

// List calls fn with the dead letters that f selects, oldest first, until fn returns false. It
// reads one at a time, so memory does not grow with their number. fn may redrive the letter that it
// got.
func (s *DeadLetters) List(ctx context.Context, f jobs.DeadFilter, fn func(jobs.DeadLetter) bool) error {
	subject, err := subjectOf(f)
	if err != nil {
		return err
	}
	for m, err := range s.conn.Each(ctx, "read dead letters", wire.DeadStream, subject, 1) {
		var d jobs.DeadLetter
		if err == nil {
			d, err = decodeLetter(m)
		}
		if err != nil {
			return err
		}
		if !fn(d) {
			return nil
		}
	}
	return nil
}

// subjectOf returns the subject of the letters that a filter selects. An empty field selects all
// values; any other must be a valid id, so that a filter cannot contain a wildcard.
func subjectOf(f jobs.DeadFilter) (string, error) {
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

// Redrive queues the job of a dead letter again, under its id, and removes its failed result and
// the letter. A call that fails in the middle may be repeated. A letter that is not a valid job
// cannot be redriven. The job loses its deadline and its start time, and its parents unless it
// died because of them. If the job is done by now, only the letter is removed.
func (s *DeadLetters) Redrive(ctx context.Context, d jobs.DeadLetter) error {
	j, err := jobs.DecodeJob(d.Data)
	if err != nil {
		return fmt.Errorf("redrive %s: %w", d.ID, err)
	}
	if j.ID != d.ID {
		return jobs.Errorf(jobs.CodeInvalid, "redrive %s: the letter holds a job with the id %q", d.ID, j.ID)
	}
	m, err := s.conn.Last(ctx, wire.ResultStream, wire.ResultSubject(j.ID))
	if err == nil {
		r, err := jobs.DecodeResult(m.Data)
		if err != nil {
			return err
		}
		if r.Status == jobs.Done {
			return s.remove(ctx, d)
		}
		// Removed by its sequence number, which needs less permission than a purge by subject.
		if err := s.conn.Remove(ctx, wire.ResultStream, m.Seq); err != nil {
			return err
		}
	} else if !errors.Is(err, jobs.ErrNotFound) {
		return err
	}
	// An earlier cancellation would end the job again. It is removed, and its revision goes with
	// the job, because a worker may receive the job before it learns of the removal.
	forgiven, err := s.uncancel(ctx, j.ID)
	if err != nil {
		return err
	}
	j = j.WithLevel(d.Level)
	j.Deadline, j.NotBefore = time.Time{}, time.Time{} // both belong to the first submission
	if d.Reason == nil || d.Reason.Code != jobs.CodeParent {
		j.After, j.OnFailedParent = nil, "" // it began, so its parents had ended
	}
	if err := s.queue.resubmit(ctx, d, j, forgiven); err != nil && !errors.Is(err, jobs.ErrExists) {
		return err
	}
	return s.remove(ctx, d)
}

// uncancel removes the cancellation of a job and returns its revision, or 0 when the job was not
// cancelled.
func (s *DeadLetters) uncancel(ctx context.Context, id string) (forgiven uint64, err error) {
	m, err := s.conn.Last(ctx, "KV_"+wire.CancelBucket, "$KV."+wire.CancelBucket+"."+id)
	if errors.Is(err, jobs.ErrNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return m.Seq, s.conn.Retry(ctx, "clear the cancellation of job "+id, func(ctx context.Context) error {
		kv, err := s.conn.JS.KeyValue(ctx, wire.CancelBucket)
		if err != nil {
			return err
		}
		return kv.Purge(ctx, id)
	})
}

// remove deletes the letter itself, and not a newer one of the same job.
func (s *DeadLetters) remove(ctx context.Context, d jobs.DeadLetter) error {
	return s.conn.Remove(ctx, wire.DeadStream, d.Seq)
}

// Purge removes the dead letters that f selects and returns their number. The zero filter selects
// all of them.
func (s *DeadLetters) Purge(ctx context.Context, f jobs.DeadFilter) (uint64, error) {
	subject, err := subjectOf(f)
	if err != nil {
		return 0, err
	}
	return s.conn.Purge(ctx, wire.DeadStream, subject)
}
