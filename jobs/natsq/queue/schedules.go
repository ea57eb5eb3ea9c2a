package queue

// This file keeps the schedules of jobs, and submits their jobs at their times.
//
// Every worker evaluates all schedules with its own clock (Run). A run of a schedule is one atomic
// batch of two messages in wire.WaitStream: the mark of its time, which can be stored once, and the
// job, which waits for no parent. So however many workers reach a time, one of them submits the
// job, and any worker moves the job on. A worker that starts reads the last mark of a schedule, and
// continues from there.
//
// A time that no worker has reached within the grace time is missed. The schedule says whether the
// last missed time is made up for (jobs.OnceMissed). A clock that is ahead submits early by as
// much; two clocks never submit a time twice.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // a container may have no time zones

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/robfig/cron/v3"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// Schedules reads and writes schedules. Its methods may be called from several goroutines. The
// records are in wire.CronBucket, by the names of the schedules. A record is changed at its
// revision, so two changes at the same time are both applied. It uses the queue for submissions,
// and changes no jobs that were submitted.
type Schedules struct {
	conn    *natsconn.Conn
	queue   *Queue
	results *Results
}

// NewSchedules returns the schedules that a connection reaches. The connection stays the caller's.
// Nothing runs before Run.
func NewSchedules(c *natsconn.Conn, q *Queue) *Schedules { return &Schedules{c, q, NewResults(c)} }

const (
	// grace is the delay after which a time counts as missed. An election of the servers takes up
	// to 10 s, and the restart of an agent less.
	grace = 30 * time.Second
	// marksKept is how long marks are kept. It must be longer than the grace time: a worker whose
	// clock is behind finds the mark of a time that another one has submitted. The last mark of a
	// schedule is always kept.
	marksKept = time.Hour
	cronTick  = 500 * time.Millisecond // the period of evaluations
)

// cronFields parses the five fields of a schedule.
var cronFields = cron.NewParser(cron.Minute | cron.Hour | cron.Dom | cron.Month | cron.Dow)

// times returns the times of a schedule in its zone. It fails with jobs.CodeInvalid if there are
// none within five years.
func times(s jobs.Schedule) (*cron.SpecSchedule, error) {
	bad := func(field, value string, why any) error {
		return jobs.Errorf(jobs.CodeInvalid, "schedule %s: %s %q: %v", s.Name, field, value, why)
	}
	if strings.Contains(s.Cron, "=") { // the library would read a zone, and panics on an incomplete one
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

// nextTime returns the next time of a schedule whose times up to from do not count.
func nextTime(at *cron.SpecSchedule, from, now time.Time) time.Time {
	if from.After(now) {
		now = from
	}
	return at.Next(now).In(at.Location)
}

// SkippedTime returns the first time, within five years after from, that a schedule would have if
// its zone did not skip an hour in spring, as a text of that clock, and the time at which it comes
// instead. Skips of less than 12 hours do not count. ok is false if there is none. The schedule is
// valid.
func SkippedTime(s jobs.Schedule, from time.Time) (wall string, next time.Time, ok bool) {
	at, err := times(s)
	if err != nil {
		return "", next, false
	}
	shown := *at // the times as the clock shows them, in UTC
	shown.Location = time.UTC
	for t := from.In(at.Location); t.Before(from.AddDate(5, 0, 0)); {
		_, gap := t.ZoneBounds()
		if gap.IsZero() {
			return "", next, false
		}
		_, before := t.Zone()
		_, after := gap.Zone()
		// The clock shows the times from begin to end in no second.
		begin := gap.UTC().Add(time.Duration(before) * time.Second)
		end := gap.UTC().Add(time.Duration(after) * time.Second)
		missing := shown.Next(begin.Add(-time.Second))
		if next = at.Next(gap.Add(-time.Second)); missing.Before(end) && !missing.IsZero() &&
			next.Sub(gap) >= 12*time.Hour {
			return missing.Format("2006-01-02 15:04"), next.In(at.Location), true
		}
		t = gap
	}
	return "", next, false
}

// due returns the times after cursor and up to now at which a schedule must run. They are the times
// within the grace time, or, if there are none, the last missed time of a schedule that makes up
// for it.
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

// latest returns the last time after cursor and up to now, or zero. It doubles the period that it
// searches, so that it does not step through a whole year of missed minutes.
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

// CheckSchedule checks a schedule as AddSchedule does, with Cron and Zone. The error is of
// jobs.CodeInvalid or jobs.CodeVersion.
func CheckSchedule(s jobs.Schedule) error {
	err := s.Validate()
	if err == nil && s.Cron != jobs.Always {
		_, err = times(s)
	}
	return err
}

// AddSchedule stores a schedule, which all workers follow within a second. Times before From, which
// is now if it is zero, do not count. It fails with jobs.ErrExists if there is a schedule of that
// name.
func (sc *Schedules) AddSchedule(ctx context.Context, s jobs.Schedule) error {
	if err := CheckSchedule(s); err != nil {
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
	err = sc.conn.CreateKey(ctx, what, wire.CronBucket, s.Name, data)
	if errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("%s: %w", what, jobs.ErrExists)
	}
	return err
}

// RemoveSchedule removes a schedule and its marks. Jobs that it has submitted continue. It fails
// with jobs.ErrNotFound if there is no schedule of that name.
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

// PauseSchedule stops a schedule if on is true, and otherwise resumes it. Then the times of the
// pause are skipped, or made up for once, as the schedule's Missed says.
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
		if !natsconn.IsWrongRevision(err) { // otherwise another process has changed it
			return err
		}
	}
}

// Read returns a schedule and its revision. It fails with jobs.ErrNotFound if there is none.
func (sc *Schedules) Read(ctx context.Context, name string) (s jobs.Schedule, revision uint64, err error) {
	if err := jobs.CheckID("schedule", name); err != nil {
		return s, 0, err
	}
	m, err := sc.conn.Key(ctx, wire.CronBucket, name)
	if err != nil {
		return s, 0, fmt.Errorf("schedule %s: %w", name, err)
	}
	return s, m.Seq, json.Unmarshal(m.Data, &s)
}

// Schedules returns all schedules in the order of their names. A schedule whose record is not valid
// has ScheduleState.Error.
func (sc *Schedules) Schedules(ctx context.Context) ([]jobs.ScheduleState, error) {
	var all []jobs.ScheduleState
	err := sc.conn.Values(ctx, "list schedules", wire.CronBucket, func(key string, m *natsconn.Message) {
		s := jobs.ScheduleState{Schedule: jobs.Schedule{Name: key}}
		e, err := readSchedule(key, m.Data)
		if err != nil {
			s.Error = err.Error()
		} else if s.Schedule = e.Schedule; !s.Paused && e.at != nil {
			s.Next = nextTime(e.at, s.From, time.Now())
		}
		all = append(all, s)
	})
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].Cron == jobs.Always {
			var n uint64
			if n, all[i].Last, err = sc.lastNumber(ctx, all[i].Name); n > 0 {
				all[i].LastJob = jobs.NumberedID(all[i].Name, n)
			}
		} else {
			all[i].Last, err = sc.lastRun(ctx, all[i].Name)
		}
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lastRun returns the time of the last mark of a schedule, or zero.
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
		return time.Time{}, nil //nolint:nilerr // the message of another program is not a run
	}
	return at, nil
}

// fire submits the job of a time, unless a process has done so. It may be repeated after an error.
func (sc *Schedules) fire(ctx context.Context, s jobs.Schedule, at time.Time) error {
	err := sc.submit(ctx, s.Run(at), wire.FiredSubject(s.Name, jobs.Stamp(at)))
	if err == nil {
		sc.dropMarks(ctx, s.Name, at)
	}
	return err
}

// submit submits a job with the mark of its run, unless there is such a mark.
func (sc *Schedules) submit(ctx context.Context, j jobs.Job, said string) (err error) {
	ctx, span := sc.queue.StartSubmit(ctx, j)
	defer func() { natsconn.EndSpan(span, err) }()
	what := "submit job " + j.ID
	m, j, err := sc.queue.Prepare(ctx, j)
	if err != nil {
		return err
	}
	m.Subject = wire.SourceOf(j).Wait(j.ID)
	_, err = sc.conn.PublishBatch(ctx, sc.conn.RetryIdempotent, what, []*nats.Msg{{Subject: said}, m})
	if exists, _ := natsconn.Rejected(err); exists {
		// Another process has submitted it. If there is no mark, a job of that id was submitted by
		// hand, and counts as the run.
		err = sc.conn.PublishMsg(ctx, sc.conn.RetryIdempotent, what, &nats.Msg{Subject: said})
		if exists, _ := natsconn.Rejected(err); exists {
			return nil
		}
	}
	if err != nil {
		return SubmitError(what, err)
	}
	// The job is stored. If this process dies now, the resolver of any worker moves it on.
	_, _ = sc.queue.Resolve(ctx, m.Subject, nil)
	return nil
}

// dropMarks removes the old marks of a schedule. After an error the next run removes them.
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

// scheduler evaluates the schedules for one worker. Its watch changes the map, and its loop reads
// it.
type scheduler struct {
	c    *Schedules
	log  *slog.Logger
	pool jobs.Pool // of the worker

	mu  sync.Mutex
	all map[string]*plan
}

// plan is a schedule in one worker. Only the loop uses cursor and next. A changed record makes a
// new plan.
type plan struct {
	jobs.Schedule
	at     *cron.SpecSchedule // nil for jobs.Always
	cursor time.Time          // the times up to this one have run or are skipped; zero if not known yet
	next   time.Time          // the next time, or the next check of a schedule that is jobs.Always
	asked  string             // the job that was asked to finish
}

// readSchedule decodes the record of a schedule, which any client with the permission may have
// written.
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
	if e.Cron == jobs.Always {
		return e, nil
	}
	var err error
	e.at, err = times(e.Schedule)
	return e, err
}

// Run follows the schedules and submits their jobs until ctx ends. Any number of workers may run
// it. Errors are logged and tried again. pool is the worker's: only workers that may execute the
// jobs of a schedule that is jobs.Always follow it.
func (sc *Schedules) Run(ctx context.Context, pool jobs.Pool, log *slog.Logger) {
	w := &scheduler{c: sc, log: log, pool: pool, all: map[string]*plan{}}
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

// changed learns a schedule that was added, changed or removed.
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

// evaluate runs the schedules that are due. A schedule that fails is tried again at the next tick,
// until its time counts as missed.
func (w *scheduler) evaluate(ctx context.Context, now time.Time) {
	w.mu.Lock()
	var ready []*plan
	for _, e := range w.all {
		always := e.Cron == jobs.Always
		if (always && e.Job.Pool == w.pool || !always && !e.Paused) && !now.Before(e.next) {
			ready = append(ready, e)
		}
	}
	w.mu.Unlock()
	for _, e := range ready {
		run := w.run
		if e.Cron == jobs.Always {
			run = w.keep
		}
		if err := run(ctx, e, now); err != nil && ctx.Err() == nil {
			w.log.Warn("schedule is late", "schedule", e.Name, "error", err)
		}
	}
}

// run submits the jobs of one schedule that are due, and moves its cursor on. After an error the
// cursor stays.
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
	if now.After(e.cursor) { // From may be in the future
		e.cursor = now
	}
	e.next = e.at.Next(e.cursor)
	return nil
}

// ParseSchedule decodes a request to add a schedule, which may omit the version. The error is a
// *schema.Error for a field, or a *jobs.Error for a rule between two fields.
func ParseSchedule(data []byte) (jobs.Schedule, error) {
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
