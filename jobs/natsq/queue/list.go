package queue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// JobState is the state of a job that has not ended.
type JobState string

// The states of a job that has not ended.
const (
	StateWaiting  JobState = "waiting"  // for other jobs
	StateDelayed  JobState = "delayed"  // until its time
	StateQueued   JobState = "queued"   // no worker has had it
	StateRunning  JobState = "running"  // a worker executes it
	StateRetrying JobState = "retrying" // a worker had it, and it waits for the next attempt
)

// ListedJob is a job that has not ended, with its state. The state comes from several answers of
// the server and of workers, so it may be some milliseconds old, and a job that moves meanwhile may
// appear in its former place.
type ListedJob struct {
	jobs.Job
	State   JobState      `json:"state"`
	Waits   []string      `json:"waits_for,omitempty"` // parents that have not ended
	Running *jobs.Running `json:"running,omitempty"`   // in StateRunning
	Note    string        `json:"note,omitempty"`      // why it does not run, if that is known
}

// Place is a position in the list of the jobs of a pool: a sequence number in the stream of one of
// its parts. The first part has a stream for each level, the default one first.
type Place struct {
	part  int
	level jobs.Level // of the first part
	Seq   uint64
}

// parts are the parts of the list of the jobs of a pool, in their order. A job that moves while
// they are read moves towards the first, so the list may miss it; it has ended or is listed the
// next time.
var parts = []struct{ name, subject string }{
	{"queued", "exo.job."}, {"waiting", "exo.wait."}, {"delayed", "exo.sched."}, {"due", "exo.due."},
}

// String returns the place as text, for ParsePlace.
func (at Place) String() string {
	word := parts[at.part].name
	if at.level != "" {
		word = string(at.level)
	}
	return word + "-" + strconv.FormatUint(at.Seq, 10)
}

// after returns the place before the next part or level.
func (at Place) after(levels []jobs.Level) Place {
	if i := slices.Index(levels, at.level) + 1; at.part == 0 && i > 0 && i < len(levels) {
		return Place{level: levels[i]}
	}
	return Place{part: at.part + 1}
}

// ParsePlace is the inverse of String. The empty text is the start of the list.
func ParsePlace(text string) (at Place, ok bool) {
	if text == "" {
		return Place{Seq: 1}, true
	}
	word, number, _ := strings.Cut(text, "-")
	seq, err := strconv.ParseUint(number, 10, 64)
	for i, p := range parts {
		if p.name == word {
			return Place{part: i, Seq: seq}, err == nil
		}
	}
	at = Place{level: jobs.Level(word), Seq: seq}
	return at, err == nil && at.level != "" && slices.Contains(jobs.Levels(), at.level)
}

// Overview is the state of a pool at one moment, from which Describe derives the state of its jobs.
// It does not change, so several goroutines may read it.
type Overview struct {
	running map[string]jobs.Running
	given   map[wire.Source]uint64 // the last job that each source has delivered
	served  map[string]int         // agents by kind
	paused  map[string]bool        // by wire.PauseKey
	silent  []string
}

// Silent returns the agents of the pool that are in the registry, and did not answer the question
// what they run: they are dead, cut off or overloaded. It is empty when the job of an Overview for
// one job runs.
func (o *Overview) Silent() []string { return o.silent }

// Overview asks the workers and the server for the state of a pool. An id limits the question about
// running jobs to one job.
func (q *Queue) Overview(ctx context.Context, p jobs.Pool, id string) (*Overview, error) {
	running, silent, err := q.running(ctx, p, id)
	if err != nil {
		return nil, err
	}
	o := &Overview{silent: silent, running: map[string]jobs.Running{}, given: map[wire.Source]uint64{}}
	for _, r := range running {
		o.running[r.JobID] = r
	}
	consumers, _, err := q.Consumers(ctx, p)
	if err != nil {
		return nil, err
	}
	for s, i := range consumers {
		o.given[s] = i.Delivered.Stream
	}
	if o.served, err = q.agents.Served(ctx, p); err != nil {
		return nil, err
	}
	o.paused, err = q.limits.PausedKeys(ctx)
	return o, err
}

// Describe returns the state of a job that was found in a stream at a sequence number. waits are
// its parents that have not ended.
func (o *Overview) Describe(j jobs.Job, stream string, seq uint64, waits []string) ListedJob {
	l := ListedJob{Job: j, State: StateQueued, Waits: waits}
	r, running := o.running[j.ID]
	level, _ := wire.LevelOf(stream)
	s := wire.SourceOf(j).At(level)
	switch {
	case stream == wire.WaitStream || len(waits) > 0:
		l.State = StateWaiting
		return l
	case stream == wire.SchedStream:
		l.State = StateDelayed
		return l
	case running:
		l.State, l.Running = StateRunning, &r
		return l
	case seq <= o.given[s]:
		l.State = StateRetrying
	}
	switch {
	case o.paused[wire.PauseKey(j.Pool, "")]:
		l.Note = fmt.Sprintf("pool %s is paused: exoswarm queue resume %s", j.Pool, j.Pool)
	case o.paused[wire.PauseKey(j.Pool, j.Kind)]:
		l.Note = fmt.Sprintf("kind %s is paused: exoswarm queue resume %s --kind %s", j.Kind, j.Pool, j.Kind)
	case o.served[j.Kind] == 0:
		l.Note = wire.Unserved(j.Pool, j.Kind, o.served)
	}
	return l
}

// Locate returns a job that has not ended, with its state. It fails with jobs.ErrNotFound if there
// is none of that id.
func (q *Queue) Locate(ctx context.Context, id string) (ListedJob, error) {
	j, _, err := q.LocateIn(ctx, id)
	return j, err
}

// LocateIn is Locate with the overview from which the state is derived.
func (q *Queue) LocateIn(ctx context.Context, id string) (ListedJob, *Overview, error) {
	j, stream, seq, err := q.find(ctx, id)
	if err != nil {
		return ListedJob{}, nil, err
	}
	waits, err := q.Missing(ctx, j)
	if err != nil {
		return ListedJob{}, nil, err
	}
	o, err := q.Overview(ctx, j.Pool, id)
	if err != nil {
		return ListedJob{}, nil, err
	}
	return o.Describe(j, stream, seq, waits), o, nil
}

// List is Jobs with the state of each job. The states are read when the call begins.
func (q *Queue) List(ctx context.Context, p jobs.Pool, fn func(ListedJob) bool) error {
	o, err := q.Overview(ctx, p, "")
	if err != nil {
		return err
	}
	var werr error
	err = q.JobsFrom(ctx, p, "*", Place{Seq: 1}, func(at Place, j jobs.Job) bool {
		var waits []string
		waits, werr = q.Missing(ctx, j)
		return werr == nil && fn(o.Describe(j, at.Stream(p), at.Seq, waits))
	})
	return errors.Join(err, werr)
}

// Stream returns the stream of a place.
func (at Place) Stream(p jobs.Pool) string {
	switch parts[at.part].name {
	case "queued":
		return wire.Source{Pool: p, Level: at.level}.Stream()
	case "waiting":
		return wire.WaitStream
	}
	return wire.SchedStream
}

// Jobs calls fn with the jobs of a pool until fn returns false: first jobs that are queued, running
// or waiting for a retry, then jobs that wait for other jobs, then jobs that wait for their time,
// each oldest first. Messages that are not jobs are skipped. It reads up to 32 messages at a time.
func (q *Queue) Jobs(ctx context.Context, p jobs.Pool, fn func(jobs.Job) bool) error {
	return q.JobsFrom(ctx, p, "*", Place{Seq: 1}, func(_ Place, j jobs.Job) bool { return fn(j) })
}

// JobsFrom is Jobs from a place on, for one tenant, or for all if tenant is *. at is the place of
// the job.
func (q *Queue) JobsFrom(ctx context.Context, p jobs.Pool, tenant string, from Place,
	fn func(at Place, j jobs.Job) bool,
) error {
	levels, err := q.levels(ctx, p)
	if err != nil {
		return err
	}
	what := "list the jobs of pool " + string(p)
	var ahead *natsconn.Ahead // of the part and level; nil at their begin
	for ; ; from.Seq++ {
		if ahead == nil {
			stream, subject, level := from.Stream(p), parts[from.part].subject+string(p)+".*.*."+tenant+".*", from.level
			if from.part == 0 {
				subject = wire.AnyJob(p, level, tenant, "*")
			}
			ahead = natsconn.NewAhead(func(ctx context.Context, seq uint64) (m *natsconn.Message, err error) {
				err = q.conn.AtLevel(ctx, p, level, what, func(ctx context.Context) (err error) {
					m, err = q.conn.NextOnce(ctx, stream, subject, seq)
					return err
				})
				return m, err
			})
		}
		m, err := ahead.Next(ctx, from.Seq)
		switch {
		case errors.Is(err, jobs.ErrNotFound), absent(from.level, err):
			if from, ahead = from.after(levels), nil; from.part == len(parts) {
				return nil
			}
			continue
		case err != nil:
			return err
		}
		from.Seq = m.Seq
		if j, err := decode(m); err == nil && !fn(from, j) {
			return nil
		}
	}
}
