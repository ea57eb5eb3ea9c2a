package gateway

// This file submits the jobs of rules of swarms, each once for a rule and a round.
//
// A submission is one atomic batch of two messages in wire.WaitStream: the job, which waits for no
// parent, and a mark with its place in the log of the swarm. The mark names the mark before it, so
// of several processes that submit the same job one succeeds, and the other processes find its
// mark. The last mark of a swarm and a job stays as long as the swarm. It tells what was submitted
// when the job and its result are gone.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/schema"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Submissions submits jobs of rules. Its methods may be called from several goroutines.
type Submissions struct {
	conn   *natsconn.Conn
	queue  RuleQueue
	swarms Swarms
}

// RuleQueue is what submissions need of the work queue. It is a *queue.Queue.
type RuleQueue interface {
	Admit(ctx context.Context, j jobs.Job) error
	Prepare(ctx context.Context, j jobs.Job) (*nats.Msg, jobs.Job, error)
	Resolve(ctx context.Context, subject string, over *jobs.Result) (queue.Resolution, error)
}

// Swarms reads the records of swarms. It is a *swarmlog.Swarms.
type Swarms interface {
	Swarm(ctx context.Context, id string) (swarms.Swarm, error)
}

// NewSubmissions returns the submissions that a connection reaches. The connection stays the
// caller's.
func NewSubmissions(c *natsconn.Conn, q RuleQueue, s Swarms) *Submissions {
	return &Submissions{c, q, s}
}

// errOvertaken reports that another process has stored a mark in between.
var errOvertaken = errors.New("another process was faster")

// Submit submits the job of a swarm that an emission asks for, unless it was submitted, and returns
// when it is stored. The job is the one that the record of the swarm has under the name. The
// callers of one swarm and name submit in the order of its log.
//
// It fails with jobs.ErrFull if the queue or the tenant has no room, and with jobs.ErrNotFound if
// there is no such swarm. A failed call may be repeated.
func (s *Submissions) Submit(ctx context.Context, e swarms.Emission) error {
	what := fmt.Sprintf("submit job %.100s of swarm %.100s in round %d", e.Name, e.Swarm, e.Round)
	err := errOvertaken
	for admitted := false; errors.Is(err, errOvertaken); {
		err = s.submit(ctx, e, &admitted)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

// submit is one try of Submit. A job is admitted once, because that counts it.
func (s *Submissions) submit(ctx context.Context, e swarms.Emission, admitted *bool) error {
	of, err := s.swarms.Swarm(ctx, e.Swarm)
	if err == nil && (of.Identity() != e.Identity || of.Ending) {
		err = fmt.Errorf("swarm %s: %w: it was removed", e.Swarm, jobs.ErrNotFound)
	}
	if err != nil {
		return err
	}
	j, err := of.Job(e)
	if err != nil {
		return err
	}
	key := of.Key()
	after, done, err := s.last(ctx, key, e)
	if err != nil || done {
		return err
	}
	if err := schema.CheckSpec(j); err != nil {
		return err
	}
	if !*admitted {
		if err := s.queue.Admit(ctx, j); err != nil {
			return err
		}
		*admitted = true
	}
	return s.store(ctx, key, e, j, after)
}

// last returns the number of the last mark of a swarm and a job, 0 for none. done reports whether
// the mark is of the emission or of a later one.
func (s *Submissions) last(ctx context.Context, key string, e swarms.Emission) (seq uint64, done bool, err error) {
	all := wire.SubmittedSubject(key, e.Name, "*")
	m, err := s.conn.Last(ctx, wire.WaitStream, all)
	if errors.Is(err, jobs.ErrNotFound) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	of, err := swarms.DecodeEmission(m.Data)
	if err == nil && of.Identity == e.Identity {
		return m.Seq, !of.Before(e), nil
	}
	// Records of earlier versions share the names of their marks. That swarm is gone.
	if _, err := s.conn.Purge(ctx, wire.WaitStream, all); err != nil {
		return 0, false, err
	}
	return 0, false, errOvertaken
}

// store stores a job and its mark behind the mark with the number after, and removes mark after.
func (s *Submissions) store(ctx context.Context, key string, e swarms.Emission, j jobs.Job, after uint64) error {
	m, j, err := s.queue.Prepare(ctx, j)
	if err != nil {
		return err
	}
	m.Subject = wire.SourceOf(j).Wait(j.ID)
	mark, err := s.mark(key, e, after)
	if err != nil {
		return err
	}
	_, err = s.conn.PublishBatch(ctx, s.conn.RetryUnlessFull, "store job "+j.ID, []*nats.Msg{mark, m})
	if exists, _ := natsconn.Rejected(err); exists {
		// A job of that id waits that was submitted by hand. It counts as the job of the rule.
		_, err = s.conn.PublishBatch(ctx, s.conn.RetryUnlessFull, "mark job "+j.ID, []*nats.Msg{mark})
	}
	if natsconn.IsWrongRevision(err) {
		return errOvertaken // by another process, or by the first try of this one
	}
	if err != nil {
		return queue.SubmitError("store job "+j.ID, err)
	}
	if after > 0 { // a mark that stays is removed behind the next one, or with the swarm
		_ = s.conn.Remove(ctx, wire.WaitStream, after)
	}
	// The job is stored. If this process dies now, the resolver of any worker moves it on.
	_, _ = s.queue.Resolve(ctx, m.Subject, nil)
	return nil
}

func (s *Submissions) mark(key string, e swarms.Emission, after uint64) (*nats.Msg, error) {
	e.Candidates, e.Votes, e.Leader = nil, nil, nil // only its place is needed
	data, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode a mark: %w", err)
	}
	m := &nats.Msg{Subject: wire.SubmittedSubject(key, e.Name, fmt.Sprintf("%d-%d", e.Entry, e.Rule)), Data: data}
	natsconn.SetHeader(m, "Nats-Expected-Stream", wire.WaitStream)
	natsconn.SetHeader(m, jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(after, 10))
	natsconn.SetHeader(m, "Nats-Expected-Last-Subject-Sequence-Subject", wire.SubmittedSubject(key, e.Name, "*"))
	return m, nil
}
