package cpuagents

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// collect reads decisions until the end of the log, and sends them to the output and the sinks. It
// returns the last entry of the log, which has the number of rows that were sent. It is the only
// goroutine that changes decided.
func (s *stream) collect(ctx context.Context, ordered *orderedOutput) (end swarms.EndOfInput, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r, err := s.out.Read(ctx, 1)
	if err != nil {
		cancel(nil)
		return end, err
	}
	// The reader waits in a goroutine of its own, which ends before collect returns.
	entries := make(chan swarms.Entry)
	failed := make(chan error, 1)
	var reading sync.WaitGroup
	reading.Add(1)
	go func() {
		defer reading.Done()
		defer r.Close()
		for {
			e, err := r.Next(ctx)
			if err != nil {
				failed <- err
				return
			}
			select {
			case entries <- e:
			case <-ctx.Done():
				failed <- context.Cause(ctx)
				return
			}
		}
	}()
	defer reading.Wait()
	defer cancel(nil)

	// A job whose swarm is unserved gets no decision, and no error: the ticker looks for that. What is
	// due is counted from the batches, so that a slow source is not taken for a stall.
	look := time.NewTicker(time.Second)
	defer look.Stop()
	quiet := time.Now() // since when a decision has been due and none has come
	for {
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
			s.report(false)
		case e := <-entries:
			if done, err := s.entry(ctx, e, &end, ordered); done || err != nil {
				return end, err
			}
			quiet = time.Now() // a webhook may have taken its time
		}
	}
}

// overdue returns the time since which a decision is due, and an error of class jobs.CodeDevice if
// that is longer ago than Stall. The parameter since is the result of the last call, or the time of
// the last decision. No decision is due while all batches are answered, so a slow source is not a
// stall. The error tells an operator whether a GPU agent has ever answered.
func (s *stream) overdue(since time.Time) (time.Time, error) {
	s.mu.Lock()
	due, begun := s.sent > s.decided, s.decided > 0
	s.mu.Unlock()
	stall := s.Stall
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

// entry processes one entry of the log of decisions. It returns true at the end of the log. A batch
// counts as decided after all sinks have taken it. A refused batch fails the job, and a refused
// question of another client does not.
func (s *stream) entry(
	ctx context.Context, e swarms.Entry, end *swarms.EndOfInput, ordered *orderedOutput,
) (done bool, err error) {
	switch e.Kind {
	case swarms.EntryDecide:
		if err := s.awaitEntities(ctx, s.decided+1); err != nil { // only this goroutine changes it
			return false, err
		}
		d, err := ordered.write(e.Data)
		if err != nil {
			return false, err
		}
		// The batch counts as decided only after this, so a slow sink slows the reading.
		for _, t := range s.sinks {
			began := time.Now()
			if err := t.Send(ctx, s.decided+1, d); err != nil { // only this goroutine changes it
				return false, err
			}
			s.Metrics.sent(time.Since(began))
		}
	case swarms.EntryEnd:
		if err := json.Unmarshal(e.Data, end); err != nil {
			return false, fmt.Errorf("end of swarm %s: %w", s.spec.Name, err)
		}
		return true, nil
	case swarms.EntryRejected:
		failure := &jobs.Error{Code: jobs.CodeInternal, Message: "the swarm refused a batch"}
		if err := json.Unmarshal(e.Data, failure); err != nil {
			return false, fmt.Errorf("refusal of swarm %s: %w", s.spec.Name, err)
		}
		asked, err := s.asked(ctx, e.Ref)
		if err != nil || !asked {
			return false, cmp.Or(err, error(failure))
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
	s.mu.Lock()
	s.decided++
	s.mu.Unlock()
	select {
	case s.answered <- struct{}{}:
	default:
	}
	s.report(false)
	return false, nil
}
