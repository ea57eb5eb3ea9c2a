package runjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

var ( // tests shorten them
	// pickup bounds the time until a CPU agent takes the job.
	pickup = 30 * time.Second
	// hintAfter is the time without news after which a run shows what it waits for.
	hintAfter = 3 * time.Second
)

// errNotOver marks an error after which the job may go on, so its objects must stay.
var errNotOver = errors.New("the job is not over")

// withdrawnError is an error after which the job is gone: no agent has had it.
type withdrawnError struct{ error }

func (e withdrawnError) Unwrap() error { return e.error }

// jobFailure is the error of a job that failed for good, and has a dead letter.
type jobFailure struct{ cause *jobs.Error }

func (f *jobFailure) Error() string { return f.cause.Error() }

func (f *jobFailure) Unwrap() error { return f.cause }

// await waits for the result of a job and shows its progress. When ctx ends, it asks the job to
// finish early if own is set, and waits on; it leaves a job of another process alone. base bounds
// the calls that follow.
func await(ctx, base context.Context, conn *natsq.Conn, job jobs.Job, show *progress,
	own bool,
) (*cpuagents.StreamResult, error) {
	// The wait ends with the result, or with the cause that the goroutine below finds.
	wait, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	var latest atomic.Pointer[cpuagents.StreamProgress]
	news := make(chan struct{}, 1)
	stop, err := conn.Results.Progress(job.ID, func(data json.RawMessage) {
		var p cpuagents.StreamProgress
		if json.Unmarshal(data, &p) != nil {
			return
		}
		latest.Store(&p)
		select {
		case news <- struct{}{}:
		default:
		}
		show.update(p)
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, errNotOver)
	}
	defer stop()
	over := make(chan struct{})
	watched := make(chan struct{})
	withdrawn := false // no agent had the job, and it is no longer queued
	// withdraw removes the job unless an agent has it, and then ends the wait. The queue decides,
	// since a busy agent has no news for long.
	withdraw := func(cause error) bool {
		var err error
		if withdrawn, err = conn.Queue.Reclaim(base, job); err != nil || !withdrawn {
			return false
		}
		cancel(cause)
		return true
	}
	go func() {
		defer close(watched)
		look := time.NewTicker(time.Second)
		defer look.Stop()
		interrupted := ctx.Done()
		quiet := time.NewTimer(silence) // runs from Ctrl-C on
		quiet.Stop()
		defer quiet.Stop()
		stopping := false
		hints := hints{swarms: conn.Swarms, job: job.ID, began: time.Now()}
		untaken := false    // at asked, no agent had the job
		var asked time.Time // when the queue was asked for it
		for {
			select {
			case <-interrupted:
				interrupted = nil
				if !own {
					cancel(command.ErrInterrupted)
					continue
				}
				show.note("stopping: finishing the rows that were read (Ctrl-C again ends at once)")
				if err := conn.Queue.Cancel(base, job, true); err != nil {
					cancel(err)
				}
				stopping = true
				quiet.Reset(silence)
			case <-news:
				if stopping {
					quiet.Stop()
					if p := latest.Load(); !p.Done { // from then on the agent writes the output and sends no news
						quiet.Reset(silence)
					}
				}
			case <-quiet.C: // the agent that was asked to finish has said nothing for silence
				if withdraw(command.ErrInterrupted) {
					continue
				}
				cancel(jobs.Errorf(jobs.CodeIO, "the CPU agent says nothing for %v: job %s is to finish when an "+
					"agent has it again (exoswarm job get %s)",
					silence, job.ID, job.ID))
			case <-look.C:
				p := latest.Load()
				if p == nil && job.Kind != "" && time.Since(asked) >= hintAfter &&
					time.Since(hints.began) >= hintAfter {
					queued, err := conn.Queue.Queued(wait, job)
					untaken, asked = err == nil && queued, time.Now()
				}
				untaken = untaken && p == nil
				if text := hints.next(untaken); text != "" {
					show.note(text)
				}
				show.waiting(hints.waits(wait, p))
				if own && untaken && !withdrawn && time.Since(hints.began) >= pickup {
					withdraw(jobs.Errorf(jobs.CodeIO, "no CPU agent has taken the job within %v: start one (cpuagent "+
						"--nats URL)", pickup))
				}
			case <-over:
				return
			}
		}
	}()
	r, err := conn.Results.Result(wait, job.ID)
	close(over)
	<-watched
	show.end()
	switch {
	case err != nil && withdrawn:
		return nil, withdrawnError{err}
	case err != nil:
		return nil, fmt.Errorf("%w: %w", err, errNotOver)
	case r.Status != jobs.Done && r.Error == nil:
		return nil, errors.New("the job failed without a reason")
	case r.Status != jobs.Done:
		return nil, &jobFailure{r.Error}
	}
	out := &cpuagents.StreamResult{}
	if err := json.Unmarshal(r.Output, out); err != nil {
		return nil, fmt.Errorf("result of job %s: %w", job.ID, err)
	}
	return out, nil
}

// silence bounds the time without news of an agent that was asked to finish, after which the
// command ends without it.
const silence = 4 * time.Second

// swarmReader reads the records of swarms and the state of their agents. It is the Swarms of a
// connection.
type swarmReader interface {
	Swarm(ctx context.Context, id string) (swarms.Swarm, error)
	Census(ctx context.Context) (*swarmlog.Census, error)
}

// hints finds what a run waits for. One goroutine uses it.
type hints struct {
	swarms  swarmReader
	job     string // its id, which is also the id of the swarm
	began   time.Time
	taken   bool      // told of a missing CPU agent
	decided uint64    // decisions when they were last seen to become more
	since   time.Time // when that was
}

// next returns a note that a run shows once, or nothing: that no CPU agent has taken the job, which
// untaken reports.
func (h *hints) next(untaken bool) string {
	if !untaken || h.taken {
		return ""
	}
	h.taken = true
	return "waiting: no CPU agent has taken the job yet (cpuagent --nats URL starts one)"
}

// waits returns the reason why no row was decided for hintAfter, or nothing: there is no GPU agent,
// the last one is lost, or the one that has taken over replays the log.
func (h *hints) waits(ctx context.Context, p *cpuagents.StreamProgress) string {
	now := time.Now()
	// Every new decision, and a job without open rows, starts the time again.
	if p == nil || p.Done || p.Decisions >= p.Observations || p.Decisions != h.decided || h.since.IsZero() {
		if h.since = now; p != nil {
			h.decided = p.Decisions
		}
		return ""
	}
	if now.Sub(h.since) < hintAfter {
		return ""
	}
	record, err := h.swarms.Swarm(ctx, h.job)
	if err != nil { // it is not made yet, or is over
		return ""
	}
	census, err := h.swarms.Census(ctx)
	if err != nil {
		return ""
	}
	st := swarmclient.ShardStates(record, census.Holders, census)[0]
	switch {
	case st.State == swarmclient.StateServed:
		return ""
	case st.State == swarmclient.StateWaiting:
		return swarmclient.StateWaiting + " (gpuagent --nats URL starts one)"
	case st.Recovering != nil:
		return fmt.Sprintf("%s is %s", st.Holder, st.State)
	}
	return st.State
}
