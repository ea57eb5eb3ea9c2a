package natsq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
	_ "time/tzdata"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/robfig/cron/v3"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// a container may have none, and a zone must mean the same everywhere

// A run of a schedule is one atomic batch of two messages in waitStream: the mark of its time, which can be written once, and the job as one
// that waits for nothing. So however many agents come to a time, one of them submits, and whoever lives moves the job on.
// The clock is the agents'.

const (
	// grace is how late a time may be seen that does not count as missed: an election of the servers takes up to 10 s, an agent's restart less.
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
		return nil, bad("cron", s.Cron, fmt.Sprintf("%v: use five fields: minute, hour, day of month, month, day of week", err))
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

// latest is the last time behind cursor and up to now, or zero. It looks back ever further, so that a year that was missed is not gone
// through minute by minute.
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

// AddSchedule stores a schedule, which every worker follows from then on. jobs.ErrExists when there is one of that name.
func (c *Conn) AddSchedule(ctx context.Context, s jobs.Schedule) error {
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
	err = c.InBucket(ctx, what, wire.CronBucket, func(ctx context.Context, kv jetstream.KeyValue) error {
		_, err := kv.Create(ctx, s.Name, data)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyExists) {
		return fmt.Errorf("%s: %w", what, jobs.ErrExists)
	}
	return err
}

// RemoveSchedule ends a schedule; jobs that it has submitted go on. jobs.ErrNotFound when there is none of that name.
func (c *Conn) RemoveSchedule(ctx context.Context, name string) error {
	if _, _, err := c.readOne(ctx, name); err != nil {
		return err
	}
	err := c.InBucket(ctx, "remove schedule "+name, wire.CronBucket, func(ctx context.Context, kv jetstream.KeyValue) error { return kv.Purge(ctx, name) })
	if err != nil {
		return err
	}
	_, err = c.Purge(ctx, wire.WaitStream, wire.FiredSubject(name, "*"))
	return err
}

// PauseSchedule has a schedule stop, or go on. When it goes on the times in between are skipped, or made up for once, as its Missed says.
func (c *Conn) PauseSchedule(ctx context.Context, name string, on bool) error {
	for {
		s, revision, err := c.readOne(ctx, name)
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
		err = c.InBucket(ctx, "change schedule "+name, wire.CronBucket, func(ctx context.Context, kv jetstream.KeyValue) error {
			_, err := kv.Update(ctx, name, data, revision)
			return err
		})
		if !natsconn.IsWrongRevision(err) { // somebody else changed it: look again
			return err
		}
	}
}

// readOne reads one schedule and its revision.
func (c *Conn) readOne(ctx context.Context, name string) (s jobs.Schedule, revision uint64, err error) {
	if err := jobs.CheckID("schedule", name); err != nil {
		return s, 0, err
	}
	err = c.InBucket(ctx, "read schedule "+name, wire.CronBucket, func(ctx context.Context, kv jetstream.KeyValue) error {
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
func (c *Conn) Schedules(ctx context.Context) ([]jobs.ScheduleState, error) {
	var all []jobs.ScheduleState
	err := c.Values(ctx, "list schedules", wire.CronBucket, func(key string, m *natsconn.Message) {
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
		if all[i].Last, err = c.lastRun(ctx, all[i].Name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// lastRun is the last time of a schedule that has come, or zero.
func (c *Conn) lastRun(ctx context.Context, name string) (time.Time, error) {
	m, err := c.Last(ctx, wire.WaitStream, wire.FiredSubject(name, "*"))
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
func (c *Conn) fire(ctx context.Context, s jobs.Schedule, at time.Time) (err error) {
	j := s.Run(at)
	ctx, span := c.Queue.StartSubmit(ctx, j)
	defer func() { natsconn.EndSpan(span, err) }()
	what := "submit job " + j.ID
	m, j, err := c.Queue.Prepare(ctx, j)
	if err != nil {
		return err
	}
	m.Subject = wire.SourceOf(j).Wait(j.ID)
	said := wire.FiredSubject(s.Name, jobs.Stamp(at))
	_, err = c.PublishBatch(ctx, c.RetryIdempotent, what, []*nats.Msg{{Subject: said}, m})
	if exists, _ := natsconn.Rejected(err); exists {
		// Somebody has. Only when a job of that id was submitted by hand is there no mark; then that is the run.
		err = c.PublishMsg(ctx, c.RetryIdempotent, what, &nats.Msg{Subject: said})
		if exists, _ := natsconn.Rejected(err); exists {
			return nil
		}
	}
	if err != nil {
		return queue.SubmitError(what, err)
	}
	// The rest is anybody's.
	_, _ = c.Queue.Resolve(ctx, m.Subject, nil)
	c.dropMarks(ctx, s.Name, at)
	return nil
}

// dropMarks removes marks that nobody needs any more. What fails here the next run does.
func (c *Conn) dropMarks(ctx context.Context, name string, at time.Time) {
	for {
		m, err := c.Next(ctx, wire.WaitStream, wire.FiredSubject(name, "*"), 1)
		if err != nil {
			return
		}
		old, err := jobs.ParseStamp(m.Subject[strings.LastIndex(m.Subject, ".")+1:])
		if err == nil && at.Sub(old) <= marksKept {
			return
		}
		if c.Remove(ctx, wire.WaitStream, m.Seq) != nil {
			return
		}
	}
}

// clockwork follows the schedules for one worker.
type clockwork struct {
	c   *Conn
	log *slog.Logger

	mu  sync.Mutex
	all map[string]*planned
}

// planned is a schedule and what one worker knows of it; the loop alone uses the times.
type planned struct {
	jobs.Schedule
	at     *cron.SpecSchedule
	cursor time.Time // times up to it are done with; zero: not known yet
	next   time.Time
}

func readSchedule(key string, value []byte) (*planned, error) {
	e := &planned{}
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

// cron runs schedules until ctx ends. Any number of workers do.
func (c *Conn) cron(ctx context.Context, log *slog.Logger) {
	w := &clockwork{c: c, log: log, all: map[string]*planned{}}
	var watch sync.WaitGroup
	watch.Go(func() { c.FollowBucket(ctx, wire.CronBucket, make(chan struct{}), w.changed, log) })
	defer watch.Wait()
	tick := time.NewTicker(cronTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.turn(ctx, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

func (w *clockwork) changed(u jetstream.KeyValueEntry) {
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

// turn runs what is due now. What fails is tried again at the next turn, until it counts as missed.
func (w *clockwork) turn(ctx context.Context, now time.Time) {
	w.mu.Lock()
	var ready []*planned
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

func (w *clockwork) run(ctx context.Context, e *planned, now time.Time) error {
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
