package queue

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

const (
	// keepTick is the time between two checks of the job of a schedule with jobs.Always.
	keepTick = 5 * time.Second
	// unknownJob is how long a job that is neither queued nor over is waited for. A worker may move
	// it from one stream to another at the moment of the check.
	unknownJob = time.Minute
)

// lastNumber returns the number of the last job of a schedule with jobs.Always, and when it was
// submitted; 0 if there is none.
func (sc *Schedules) lastNumber(ctx context.Context, name string) (n uint64, at time.Time, err error) {
	m, err := sc.conn.Last(ctx, wire.WaitStream, wire.FiredSubject(name, "*"))
	if errors.Is(err, jobs.ErrNotFound) {
		return 0, at, nil
	}
	if err != nil {
		return 0, at, err
	}
	// The mark of another program is not a number, and counts as none.
	n, _ = numberOf(m.Subject)
	return n, m.Time, nil
}

// numberOf returns the number of a job from the subject of its mark.
func numberOf(subject string) (uint64, error) {
	return strconv.ParseUint(strings.TrimPrefix(subject[strings.LastIndex(subject, ".")+1:], "r"), 10, 64)
}

// keep submits the next job of a schedule with jobs.Always if the last one is over. The number of a
// job is in its mark, which can be stored once, so one worker of all submits it. It asks the job of
// a schedule that is paused to finish.
func (w *scheduler) keep(ctx context.Context, e *plan, now time.Time) error {
	n, at, err := w.c.lastNumber(ctx, e.Name)
	if err != nil {
		return err
	}
	e.next = now.Add(keepTick)
	if n > 0 {
		id := jobs.NumberedID(e.Name, n)
		r, err := w.c.results.Lookup(ctx, id)
		switch {
		case err == nil:
			wait, ok := nextAfter(r, e.From, now)
			if wait > 0 {
				e.next = now.Add(min(wait, keepTick))
			}
			if !ok || wait > 0 || e.Paused {
				return nil
			}
		case !errors.Is(err, jobs.ErrNotFound):
			return err
		default:
			j, err := w.c.queue.Find(ctx, id)
			switch {
			case err == nil && e.Paused && e.asked != id:
				if err := w.c.queue.Cancel(ctx, j, true); err != nil {
					return err
				}
				e.asked = id
				return nil
			case err == nil, e.Paused:
				return nil
			case !errors.Is(err, jobs.ErrNotFound):
				return err
			case now.Sub(at) < unknownJob:
				return nil
			}
		}
	}
	if e.Paused {
		return nil
	}
	if n++; n == 1 {
		// The results of a removed schedule of the same name may still be there, so the first
		// number is a time.
		n = uint64(max(e.From.Unix(), 1))
	}
	mark := wire.FiredSubject(e.Name, "r"+strconv.FormatUint(n, 10))
	if err := w.c.submit(ctx, e.Numbered(n, now), mark); err != nil {
		return err
	}
	w.log.Info("job of a schedule submitted", "schedule", e.Name, "number", n)
	return w.c.dropNumbers(ctx, e.Name)
}

// nextAfter returns how long to wait before the job that follows one with a result. ok is false if
// there is none until the schedule is resumed. from is the time of the last resume.
func nextAfter(r jobs.Result, from, now time.Time) (wait time.Duration, ok bool) {
	if r.Status == jobs.Done || from.After(r.Finished) {
		return 0, true
	}
	if jobs.EndsSchedule(r) {
		return 0, false
	}
	return max(r.Finished.Add(jobs.AlwaysPause).Sub(now), 0), true
}

// keptNumbers is the number of marks of a schedule that are kept.
const keptNumbers = 16

// dropNumbers removes the old marks of a schedule with jobs.Always, once in a while.
func (sc *Schedules) dropNumbers(ctx context.Context, name string) error {
	for {
		n, _, err := sc.lastNumber(ctx, name)
		if err != nil {
			return err
		}
		m, err := sc.conn.Next(ctx, wire.WaitStream, wire.FiredSubject(name, "*"), 1)
		if errors.Is(err, jobs.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		if first, err := numberOf(m.Subject); err == nil && n-first < keptNumbers {
			return nil
		}
		if err := sc.conn.Remove(ctx, wire.WaitStream, m.Seq); err != nil {
			return err
		}
	}
}
