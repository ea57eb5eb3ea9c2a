package cpuagents

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// collect reads decisions until the end of the log, and sends them to the output and the sinks. It
// returns the last entry of the log, which has the number of rows that were sent. Only collect
// calls noteDecided.
func (s *stream) collect(ctx context.Context, ordered *orderedOutput) (end swarms.EndOfInput, err error) {
	m, err := newMerge(s)
	if err != nil {
		return end, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	// Each log has a goroutine that reads. All of them end before collect returns.
	failed := make(chan error, len(s.logs.shards))
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel(nil)
	answers := make([]chan swarms.Entry, len(s.logs.shards))
	for i, k := range s.logs.shards {
		r, err := k.Out.Read(ctx, 1)
		if err != nil {
			return end, err
		}
		answers[i] = make(chan swarms.Entry)
		reading.Go(func() {
			defer r.Close()
			failed <- pass(ctx, r, answers[i])
		})
	}

	// A job whose swarm is unserved gets no decision, and no error: the ticker finds that. What is
	// due is counted from the batches, so that a slow source is not taken for a stall.
	look := time.NewTicker(time.Second)
	defer look.Stop()
	quiet := time.Now() // since when a decision has been due and none has come
	for {
		next, wake := m.next(answers)
		select {
		case err := <-failed:
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return end, err
		case <-look.C:
			if quiet, err = s.overdue(quiet); err != nil {
				return end, err
			}
			s.counts.report(false)
		case <-wake:
		case e := <-next:
			if done, err := s.entry(ctx, e, m, ordered); done || err != nil {
				return m.end, err
			}
			quiet = time.Now() // a webhook may have taken its time
		}
	}
}

// pass reads entries until ctx ends or the log is gone, and returns the error.
func pass(ctx context.Context, r swarms.Reader, to chan<- swarms.Entry) error {
	for {
		e, err := r.Next(ctx)
		if err != nil {
			return err
		}
		select {
		case to <- e:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// overdue returns the time since which a decision is due, and an error of class jobs.CodeDevice if
// that is longer ago than Stall. The parameter since is the result of the last call, or the time of
// the last decision. No decision is due while all batches are answered, so a slow source is not a
// stall. The error tells an operator whether a GPU agent has ever answered.
func (s *stream) overdue(since time.Time) (time.Time, error) {
	due, begun := s.x.due()
	stall := s.agent.Stall
	switch {
	case !due:
		return time.Now(), nil
	case time.Since(since) < stall:
		return since, nil
	case !begun:
		return since, jobs.Errorf(
			jobs.CodeDevice, "no GPU agent has taken up swarm %s within %v: start one (gpuagent --nats URL)",
			s.spec.Name, stall,
		)
	}
	if s.refused != nil {
		return since, jobs.Errorf(
			jobs.CodeDevice, "swarm %s: no decision for %v: the last that was refused, a question, was with: %v",
			s.spec.Name, stall, s.refused,
		)
	}
	return since, jobs.Errorf(
		jobs.CodeDevice, "swarm %s: no decision for %v: is a GPU agent running? (gpuagent --nats URL)", s.spec.Name,
		stall,
	)
}

// entry processes one entry of the log of decisions of the shard that m.next has named. It returns
// true at the end of all logs. A batch counts as decided when all its shards have answered and all
// sinks have taken it. A refused batch fails the job, and a refused
// question of another client does not.
func (s *stream) entry(
	ctx context.Context, e swarms.Entry, m *merge, ordered *orderedOutput,
) (done bool, err error) {
	switch e.Kind {
	case swarms.EntryDecide:
		if s.entities != nil { // their rows name them
			if err := s.x.awaitRead(ctx, s.x.next()); err != nil {
				return false, err
			}
		}
		part, err := batch.DecodeDecisions(e.Data)
		if err != nil {
			return false, err
		}
		d, err := m.decided(part)
		if d == nil || err != nil {
			return false, err
		}
		if err := ordered.take(d); err != nil {
			return false, err
		}
		// The batch counts as decided only after this, so a slow sink slows the reading.
		for _, t := range s.sinks {
			began := time.Now()
			if err := t.Send(ctx, s.x.next(), d); err != nil {
				return false, err
			}
			s.agent.Metrics.sent(time.Since(began))
		}
	case swarms.EntrySwapped:
		if err := s.swapped(ctx, e, m); err != nil {
			return false, err
		}
	case swarms.EntryEnd:
		return m.ended(e)
	case swarms.EntryRejected:
		failure, asks, err := refusal(ctx, s.spec.Name, s.logs.shards[m.shard].In, e)
		if err != nil || !asks {
			return false, cmp.Or(err, failure)
		}
		s.refused = failure
		return false, nil
	case swarms.EntryState, swarms.EntryVoted, swarms.EntryFused, swarms.EntrySnapshotted, swarms.EntryComputed:
		// The client that asked reads them.
		return false, nil
	default:
		return false, jobs.Errorf(
			jobs.CodeInvalid, "swarm %s answers with an entry of unknown kind %q", s.spec.Name, e.Kind,
		)
	}
	s.x.noteDecided()
	s.counts.report(false)
	return false, nil
}
