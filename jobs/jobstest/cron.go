package jobstest

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// yearly makes a schedule of kind "a" whose only time within a year is the first minute of it.
func yearly(name string) jobs.Schedule {
	return jobs.Schedule{
		Version: jobs.Version, Name: name, Cron: "0 0 1 1 *",
		Job: jobs.Job{Pool: jobs.PoolCPU, Kind: "a", Spec: json.RawMessage("1")},
	}
}

// testSchedules: schedules are added, listed, paused, resumed and removed.
func testSchedules(t *testing.T, q Queue) {
	c := q.Connect(t)
	s := yearly("new-year")
	s.Zone = "Europe/Berlin"
	if err := c.AddSchedule(within(t), s); err != nil {
		t.Fatal(err)
	}
	if err := c.AddSchedule(within(t), s); !errors.Is(err, jobs.ErrExists) {
		t.Fatalf("added twice: %v", err)
	}
	one := func() jobs.ScheduleState {
		t.Helper()
		all, err := c.Schedules(within(t))
		if err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[0]
	}
	if st := one(); st.Name != s.Name || !st.Last.IsZero() || st.Next.UTC().Format("01-02T15:04") != "12-31T23:00" ||
		st.Error != "" || st.From.IsZero() {
		t.Errorf("%+v", st)
	}
	for _, on := range []bool{true, true, false, false} {
		if err := c.PauseSchedule(within(t), s.Name, on); err != nil {
			t.Fatal(err)
		}
		if st := one(); st.Paused != on || st.Next.IsZero() != on {
			t.Errorf("%+v", st)
		}
	}
	if err := c.RemoveSchedule(within(t), s.Name); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{c.RemoveSchedule(within(t), s.Name), c.PauseSchedule(within(t), s.Name, true)} {
		if !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("a schedule that is not there: %v", err)
		}
	}
	for want, change := range map[string]func(*jobs.Schedule){
		"use five fields":            func(s *jobs.Schedule) { s.Cron = "* *" },
		"there is no such time zone": func(s *jobs.Schedule) { s.Zone = "Nowhere" },
		`missed "twice"`:             func(s *jobs.Schedule) { s.Missed = "twice" },
		"its job has an id":          func(s *jobs.Schedule) { s.Job.ID = "x" },
		"not_before or deadline":     func(s *jobs.Schedule) { s.Job.Deadline = time.Now() },
		"waits for others":           func(s *jobs.Schedule) { s.Job.After = []string{"x"} },
		`pool "tpu"`:                 func(s *jobs.Schedule) { s.Job.Pool = "tpu" },
		`schedule "a b"`:             func(s *jobs.Schedule) { s.Name = "a b" },
		"at most 49":                 func(s *jobs.Schedule) { s.Name = strings.Repeat("x", 50) },
		"protocol version 2":         func(s *jobs.Schedule) { s.Version = 2 },
	} {
		s := yearly("bad")
		change(&s)
		if err := c.AddSchedule(within(t), s); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if all, err := c.Schedules(within(t)); err != nil || len(all) != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}

// testMissed: a time at which no worker ran is made up for once, by one of several workers, or
// skipped, as the schedule says. A paused schedule does nothing.
func testMissed(t *testing.T, q Queue) {
	c := q.Connect(t)
	once, skip, paused := yearly("once"), yearly("skip"), yearly("paused")
	once.Missed, paused.Missed = jobs.OnceMissed, jobs.OnceMissed
	paused.Paused = true
	for _, s := range []jobs.Schedule{once, skip, paused} {
		s.From = time.Now().AddDate(-3, 0, 0)
		if err := c.AddSchedule(within(t), s); err != nil {
			t.Fatal(err)
		}
	}
	var r recorder
	handlers := map[string]jobs.Handler{"a": r.handle}
	for range 3 {
		defer q.Work(t, q.Connect(t), handlers)()
	}
	year := time.Date(time.Now().UTC().Year(), 1, 1, 0, 0, 0, 0, time.UTC)
	run := once.Run(year)
	if r := result(t, c, run); r.Status != jobs.Done {
		t.Fatalf("%+v", r)
	}
	if err := c.PauseSchedule(within(t), "paused", false); err != nil {
		t.Fatal(err)
	}
	made := paused.Run(year)
	result(t, c, made)
	// By then every worker that follows one schedule follows all of them, and a new worker finds
	// nothing to do.
	defer q.Work(t, q.Connect(t), handlers)()
	late := yearly("late")
	late.Missed, late.From = jobs.OnceMissed, time.Now().AddDate(-3, 0, 0)
	if err := c.AddSchedule(within(t), late); err != nil {
		t.Fatal(err)
	}
	result(t, c, late.Run(year))
	if order := r.order(); !slices.Equal(order, []string{run.ID, made.ID, late.Run(year).ID}) {
		t.Errorf("ran %v", order)
	}
	all, err := c.Schedules(within(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if want := s.Name != "skip"; s.Last.Equal(year) != want {
			t.Errorf("schedule %s came last at %v", s.Name, s.Last)
		}
	}
}
