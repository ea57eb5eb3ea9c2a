// Package schedules keeps the schedules of jobs, and submits their jobs at their times.
package schedules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // schedules name time zones, and a container may have none

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/robfig/cron/v3"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// Schedules reads and writes schedules. Its methods may be called from several goroutines.
type Schedules struct {
	conn  *natsconn.Conn
	queue *queue.Queue
}

// New returns the schedules that a connection reaches. The connection stays the caller's.
func New(c *natsconn.Conn, q *queue.Queue) *Schedules { return &Schedules{c, q} }

// a container may have none, and a zone must mean the same everywhere

// A run of a schedule is one atomic batch of two messages in waitStream: the mark of its time,
// which can be written once, and the job as one that waits for nothing. So however many agents come
// to a time, one of them submits, and whoever lives moves the job on. The clock is the agents'.

const (
	// grace is how late a time may be seen that does not count as missed: an election of the
	// servers takes up to 10 s, an agent's restart less.
	grace = 30 * time.Second
	// marksKept is how long the marks of times stay; the last one always does.
	marksKept = time.Hour
	cronTick  = 500 * time.Millisecond
)

var cronFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// times reads when a schedule comes.
func times(s jobs.Schedule) (*cron.SpecSchedule, error) {
	bad := func(field, value string, why any) error {
		return jobs.Errorf(jobs.CodeInvalid, "schedule %s: %s %q: %v", s.Name, field, value, why)
	}
	if strings.Contains(s.Cron, "=") { // the library would read a zone, and stumble over half of one
		return nil, bad("cron", s.Cron, "use five fields, and zone for the time zone")
	}
	spec, err := cronFields.Parse(s.Cron)
	if err != nil {
		return nil, bad("cron", s.Cron, fmt.Sprintf("%v: use five fields: minute, hour, day of month, month, day of "+
			"week", err))
	}
	zone, err := time.LoadLocation(s.Zone)
	if err != nil || s.Zone == "Local" {
		return nil, bad("zone", s.Zone, "there is no such time zone: use a name such as Europe/Berlin or UTC")
	}
	at, ok := spec.(*cron.SpecSchedule)
	if !ok {
		return nil, bad("cron", s.Cron, "use five fields")
	}
	at.Location = zone
	if at.Next(time.Now()).IsZero() {
		return nil, bad("cron", s.Cron, "it does not come within five years")
	}
	return at, nil
}

// due lists the times behind cursor, up to now, at which a schedule is to run.
func due(at cron.Schedule, missed jobs.MissedPolicy, cursor, now time.Time) (run []time.Time) {
	late := now.Add(-grace)
	from := cursor
	if from.Before(late) {
		from = late
	}
	for t := at.Next(from); !t.IsZero() && !t.After(now); t = at.Next(t) {
		run = append(run, t)
	}
	if len(run) == 0 && missed == jobs.OnceMissed {
		if t := latest(at, cursor, now); !t.IsZero() {
			run = append(run, t)
		}
	}
	return run
}

// latest is the last time behind cursor and up to now, or zero. It looks back ever further, so that
// a year that was missed is not gone through minute by minute.
func latest(at cron.Schedule, cursor, now time.Time) (last time.Time) {
	for back := time.Minute; ; back *= 2 {
		from := now.Add(-back)
		end := !from.After(cursor)
		if end {
			from = cursor
		}
		for t := at.Next(from); !t.IsZero() && !t.After(now); t = at.Next(t) {
			last = t
		}
		if end || !last.IsZero() {
			return last
		}
	}
}

// AddSchedule stores a schedule, which every worker follows from then on. jobs.ErrExists when there
// is one of that name.
func (sc *Schedules) AddSchedule(ctx context.Context, s jobs.Schedule) error {
	if err := s.Validate(); err != nil {
		return err
	}
	if _, err := times(s); err != nil {
		return err
	}
	if s.From.IsZero() {
		s.From = time.Now().UTC()
	}
	data, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("add schedule %s: %w", s.Name, err)
	}
	what := "add schedule " + s.Name
	err = sc.conn.InBucket(ctx, what, wire.CronBucket, func(ctx context.Context, kv jetstream.KeyValue) error {
		_, err := kv.Create(ctx, s.Name, data)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("%s: %w", what, jobs.ErrExists)
	}
	return err
}

// RemoveSchedule ends a schedule; jobs that it has submitted go on. jobs.ErrNotFound when there is
// none of that name.
func (sc *Schedules) RemoveSchedule(ctx context.Context, name string) error {
	if _, _, err := sc.Read(ctx, name); err != nil {
		return err
	}
	err := sc.conn.InBucket(ctx, "remove schedule "+name, wire.CronBucket,
		func(ctx context.Context, kv jetstream.KeyValue) error { return kv.Purge(ctx, name) })
	if err != nil {
		return err
	}
	_, err = sc.conn.Purge(ctx, wire.WaitStream, wire.FiredSubject(name, "*"))
	return err
}

// PauseSchedule has a schedule stop, or go on. When it goes on the times in between are skipped, or
// made up for once, as its Missed says.
func (sc *Schedules) PauseSchedule(ctx context.Context, name string, on bool) error {
	for {
		s, revision, err := sc.Read(ctx, name)
		if err != nil || s.Paused == on {
			return err
		}
		if s.Paused = on; !on && s.Missed != jobs.OnceMissed {
			s.From = time.Now().UTC()
		}
		data, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("change schedule %s: %w", name, err)
		}
		err = sc.conn.InBucket(ctx, "change schedule "+name, wire.CronBucket,
			func(ctx context.Context, kv jetstream.KeyValue) error {
				_, err := kv.Update(ctx, name, data, revision)
				return err
			})
		if !natsconn.IsWrongRevision(err) { // somebody else changed it: look again
			return err
		}
	}
}

// Read reads one schedule and its revision.
func (sc *Schedules) Read(ctx context.Context, name string) (s jobs.Schedule, revision uint64, err error) {
	if err := jobs.CheckID("schedule", name); err != nil {
		return s, 0, err
	}
	err = sc.conn.InBucket(ctx, "read schedule "+name, wire.CronBucket,
		func(ctx context.Context, kv jetstream.KeyValue) error {
			e, err := kv.Get(ctx, name)
			if err != nil {
				return err
			}
			revision = e.Revision()
			return json.Unmarshal(e.Value(), &s)
		})
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		err = fmt.Errorf("schedule %s: %w", name, jobs.ErrNotFound)
	}
	return s, revision, err
}

// Schedules lists the schedules by name.
func (sc *Schedules) Schedules(ctx context.Context) ([]jobs.ScheduleState, error) {
	var all []jobs.ScheduleState
	err := sc.conn.Values(ctx, "list schedules", wire.CronBucket, func(key string, m *natsconn.Message) {
		s := jobs.ScheduleState{Schedule: jobs.Schedule{Name: key}}
		e, err := readSchedule(key, m.Data)
		if err != nil {
			s.Error = err.Error()
		} else if s.Schedule = e.Schedule; !s.Paused {
			s.Next = e.at.Next(time.Now()).In(e.at.Location)
		}
		all = append(all, s)
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Last, err = sc.lastRun(ctx, all[i].Name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lastRun is the last time of a schedule that has come, or zero.
func (sc *Schedules) lastRun(ctx context.Context, name string) (time.Time, error) {
	m, err := sc.conn.Last(ctx, wire.WaitStream, wire.FiredSubject(name, "*"))
	if errors.Is(err, jobs.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, err
	}
	at, err := jobs.ParseStamp(m.Subject[strings.LastIndex(m.Subject, ".")+1:])
	if err != nil {
		return time.Time{}, nil //nolint:nilerr // a stranger's message is no run
	}
	return at, nil
}

// fire submits the job of a time unless somebody has.
func (sc *Schedules) fire(ctx context.Context, s jobs.Schedule, at time.Time) (err error) {
	j := s.Run(at)
	ctx, span := sc.queue.StartSubmit(ctx, j)
	defer func() { natsconn.EndSpan(span, err) }()
	what := "submit job " + j.ID
	m, j, err := sc.queue.Prepare(ctx, j)
	if err != nil {
		return err
	}
	m.Subject = wire.SourceOf(j).Wait(j.ID)
	said := wire.FiredSubject(s.Name, jobs.Stamp(at))
	_, err = sc.conn.PublishBatch(ctx, sc.conn.RetryIdempotent, what, []*nats.Msg{{Subject: said}, m})
	if exists, _ := natsconn.Rejected(err); exists {
		// Somebody has. Only when a job of that id was submitted by hand is there no mark; then
		// that is the run.
		err = sc.conn.PublishMsg(ctx, sc.conn.RetryIdempotent, what, &nats.Msg{Subject: said})
		if exists, _ := natsconn.Rejected(err); exists {
			return nil
		}
	}
	if err != nil {
		return queue.SubmitError(what, err)
	}
	// The rest is anybody's.
	_, _ = sc.queue.Resolve(ctx, m.Subject, nil)
	sc.dropMarks(ctx, s.Name, at)
	return nil
}

// dropMarks removes marks that nobody needs any more. What fails here the next run does.
func (sc *Schedules) dropMarks(ctx context.Context, name string, at time.Time) {
	for {
		m, err := sc.conn.Next(ctx, wire.WaitStream, wire.FiredSubject(name, "*"), 1)
		if err != nil {
			return
		}
		old, err := jobs.ParseStamp(m.Subject[strings.LastIndex(m.Subject, ".")+1:])
		if err == nil && at.Sub(old) <= marksKept {
			return
		}
		if sc.conn.Remove(ctx, wire.WaitStream, m.Seq) != nil {
			return
		}
	}
}

// scheduler follows the schedules for one worker.
type scheduler struct {
	c   *Schedules
	log *slog.Logger

	mu  sync.Mutex
	all map[string]*plan
}

// plan is a schedule and what one worker knows of it; the loop alone uses the times.
type plan struct {
	jobs.Schedule
	at     *cron.SpecSchedule
	cursor time.Time // times up to it are done with; zero: not known yet
	next   time.Time
}

func readSchedule(key string, value []byte) (*plan, error) {
	e := &plan{}
	if err := json.Unmarshal(value, &e.Schedule); err != nil {
		return nil, jobs.Errorf(jobs.CodeInvalid, "schedule %s: its record is not valid: %v", key, err)
	}
	if e.Name != key {
		return nil, jobs.Errorf(jobs.CodeInvalid, "schedule %s: its record has the name %q", key, e.Name)
	}
	if err := e.Validate(); err != nil {
		return nil, err
	}
	var err error
	e.at, err = times(e.Schedule)
	return e, err
}

// Run runs schedules until ctx ends. Any number of workers do.
func (sc *Schedules) Run(ctx context.Context, log *slog.Logger) {
	w := &scheduler{c: sc, log: log, all: map[string]*plan{}}
	var watch sync.WaitGroup
	watch.Go(func() { sc.conn.FollowBucket(ctx, wire.CronBucket, make(chan struct{}), w.changed, log) })
	defer watch.Wait()
	tick := time.NewTicker(cronTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.evaluate(ctx, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (w *scheduler) changed(u jetstream.KeyValueEntry) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, u.Key())
	if u.Operation() != jetstream.KeyValuePut {
		return
	}
	e, err := readSchedule(u.Key(), u.Value())
	if err != nil {
		w.log.Error("schedule not followed", "error", err)
		return
	}
	w.all[u.Key()] = e
}

// evaluate runs what is due now. What fails is tried again at the next turn, until it counts as
// missed.
func (w *scheduler) evaluate(ctx context.Context, now time.Time) {
	w.mu.Lock()
	var ready []*plan
	for _, e := range w.all {
		if !e.Paused && !now.Before(e.next) {
			ready = append(ready, e)
		}
	}
	w.mu.Unlock()
	for _, e := range ready {
		if err := w.run(ctx, e, now); err != nil && ctx.Err() == nil {
			w.log.Warn("schedule is late", "schedule", e.Name, "error", err)
		}
	}
}

func (w *scheduler) run(ctx context.Context, e *plan, now time.Time) error {
	if e.cursor.IsZero() {
		last, err := w.c.lastRun(ctx, e.Name)
		if err != nil {
			return err
		}
		if e.cursor = e.From; last.After(e.From) {
			e.cursor = last
		}
	}
	for _, t := range due(e.at, e.Missed, e.cursor, now) {
		if err := w.c.fire(ctx, e.Schedule, t); err != nil {
			return err
		}
		w.log.Info("schedule came", "schedule", e.Name, "time", t.UTC())
	}
	if now.After(e.cursor) { // From may be yet to come
		e.cursor = now
	}
	e.next = e.at.Next(e.cursor)
	return nil
}

// Parse reads a request to add a schedule, whose version may be left out. The error is a
// *schema.Error, or says which rule between two fields is broken.
func Parse(data []byte) (jobs.Schedule, error) {
	if err := schema.Validate(schema.Schedule, data); err != nil {
		return jobs.Schedule{}, err
	}
	var s jobs.Schedule
	if err := json.Unmarshal(data, &s); err != nil {
		return s, jobs.Errorf(jobs.CodeInvalid, "schedule: %v", err)
	}
	s.Version = jobs.Version
	if err := s.Validate(); err != nil {
		return s, err
	}
	return s, schema.CheckSchedule(s)
}
