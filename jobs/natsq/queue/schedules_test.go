package queue

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

func scheduleOf(name, fields string) jobs.Schedule {
	return jobs.Schedule{
		Version: jobs.Version, Name: name, Cron: fields,
		Job: jobs.Job{Pool: jobs.PoolCPU, Kind: "k", Spec: []byte("1")},
	}
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestCronTimes(t *testing.T) {
	for _, c := range []struct{ fields, zone, after, want string }{
		{"*/15 8-18 * * mon-fri", "", "2026-01-30T18:45:00Z", "2026-02-02T08:00:00Z"},
		{"0 12 * * *", "Europe/Berlin", "2026-01-31T00:00:00Z", "2026-01-31T11:00:00Z"},
		{"0 12 * * *", "Europe/Berlin", "2026-07-31T00:00:00Z", "2026-07-31T10:00:00Z"},
		{"0 0 29 2 *", "", "2026-01-01T00:00:00Z", "2028-02-29T00:00:00Z"},
	} {
		s := scheduleOf("s", c.fields)
		s.Zone = c.zone
		at, err := times(s)
		if err != nil {
			t.Fatal(err)
		}
		if got := at.Next(instant(t, c.after)); !got.Equal(instant(t, c.want)) {
			t.Errorf("%s in %q after %s: %s, want %s", c.fields, c.zone, c.after, got.UTC().Format(time.RFC3339),
				c.want)
		}
	}
	for _, c := range []struct{ fields, zone, want string }{
		{"* * * *", "", "use five fields"},
		{"* * * * * *", "", "use five fields"},
		{"@every 1s", "", "use five fields"},
		{"TZ=UTC", "", "use five fields, and zone"},
		{"61 * * * *", "", "above maximum"},
		{"0 0 30 2 *", "", "it does not come within five years"},
		{"* * * * *", "Mars/Olympus", "there is no such time zone"},
		{"* * * * *", "Local", "there is no such time zone"},
	} {
		s := scheduleOf("s", c.fields)
		s.Zone = c.zone
		if _, err := times(s); err == nil || jobs.AsError(err).Code != jobs.CodeInvalid ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %q: %v, want %q", c.fields, c.zone, err, c.want)
		}
	}
}

// insideSchedules starts a server without a port, and connects to it.
func insideSchedules(t testing.TB) (*server.Server, *Schedules) {
	t.Helper()
	s, c := jobstest.InProcess(t, natsconn.Open)
	return s, NewSchedules(c, newQueue(c))
}

// anotherSchedules connects to a server once more.
func anotherSchedules(t testing.TB, s *server.Server) *Schedules {
	t.Helper()
	c := jobstest.Leased(t, s, 2*time.Second, natsconn.Open)
	return NewSchedules(c, newQueue(c))
}

// TestCronNext: times up to From do not count.
func TestCronNext(t *testing.T) {
	for _, c := range []struct{ fields, from, now, want string }{
		{"* * * * *", "2027-03-28T00:00:00Z", "2026-11-27T10:00:30Z", "2027-03-28T00:01:00Z"},
		{"* * * * *", "2026-01-01T00:00:00Z", "2026-11-27T10:00:30Z", "2026-11-27T10:01:00Z"},
		{"0 12 1 1 *", "2030-06-01T00:00:00Z", "2026-11-27T10:00:30Z", "2031-01-01T12:00:00Z"},
	} {
		at, err := times(scheduleOf("s", c.fields))
		if err != nil {
			t.Fatal(err)
		}
		if got := nextTime(at, instant(t, c.from), instant(t, c.now)); !got.Equal(instant(t, c.want)) {
			t.Errorf("%s from %s: %v, want %s", c.fields, c.from, got, c.want)
		}
	}
	_, c := insideSchedules(t)
	s := scheduleOf("later", "* * * * *")
	s.From = instant(t, "2127-03-28T00:00:00Z")
	if err := c.AddSchedule(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	all, err := c.Schedules(t.Context())
	if err != nil || len(all) != 1 || !all[0].Next.Equal(s.From.Add(time.Minute)) {
		t.Errorf("the list is %+v, %v", all, err)
	}
}

// TestCronSkipped: a time in the hour that clocks skip is found if the schedule waits long instead.
func TestCronSkipped(t *testing.T) {
	for _, c := range []struct{ fields, zone, wall, next string }{
		{"30 2 28 3 *", "Europe/Berlin", "2027-03-28 02:30", "2028-03-28T00:30:00Z"},
		{"30 2 * * *", "Europe/Berlin", "2027-03-28 02:30", "2027-03-29T00:30:00Z"},
		{"0 2 * * sun", "Europe/Berlin", "2027-03-28 02:00", "2027-04-04T00:00:00Z"},
		{"15 2 14 3 *", "America/New_York", "2027-03-14 02:15", "2028-03-14T06:15:00Z"},
		{"* * * * *", "Europe/Berlin", "", ""},
		{"0 */3 * * *", "Europe/Berlin", "", ""},
		{"0 3 28 3 *", "Europe/Berlin", "", ""},
		{"30 1 28 3 *", "Europe/Berlin", "", ""},
		{"30 2 28 3 *", "", "", ""},
		{"30 2 1 1 *", "Europe/Berlin", "", ""},
	} {
		s := scheduleOf("s", c.fields)
		s.Zone = c.zone
		wall, next, ok := SkippedTime(s, instant(t, "2026-11-27T10:00:00Z"))
		if ok != (c.wall != "") || wall != c.wall || ok && !next.Equal(instant(t, c.next)) {
			t.Errorf("%s in %q: %q, %v, %v; want %q and %s", c.fields, c.zone, wall, next, ok, c.wall, c.next)
		}
	}
}

// TestCronDue: what is due is what a walk over every minute finds.
func TestCronDue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := scheduleOf("s", fmt.Sprintf("%s %s * * *",
			rapid.SampledFrom([]string{"*", "*/7", "0", "30,31", "59"}).Draw(rt, "minute"),
			rapid.SampledFrom([]string{"*", "*/5", "3"}).Draw(rt, "hour")))
		missed := rapid.SampledFrom([]jobs.MissedPolicy{"", jobs.SkipMissed, jobs.OnceMissed}).Draw(rt, "missed")
		at, err := times(s)
		if err != nil {
			rt.Fatal(err)
		}
		cursor := instant(t, "2026-03-01T00:00:00Z").Add(time.Duration(rapid.IntRange(0, 86400).Draw(rt,
			"cursor")) * time.Second)
		now := cursor.Add(time.Duration(rapid.IntRange(-100, 3*86400).Draw(rt, "passed")) * time.Second)
		var fresh, old []time.Time
		for m := cursor.Truncate(time.Minute); !m.After(now); m = m.Add(time.Minute) {
			switch {
			case !m.After(cursor) || !at.Next(m.Add(-time.Second)).Equal(m):
			case m.After(now.Add(-grace)):
				fresh = append(fresh, m)
			default:
				old = append(old, m)
			}
		}
		want := fresh
		if len(fresh) == 0 && len(old) > 0 && missed == jobs.OnceMissed {
			want = old[len(old)-1:]
		}
		if got := due(at, missed, cursor, now); !slices.EqualFunc(got, want, time.Time.Equal) {
			rt.Fatalf("%s from %s to %s: %v, want %v", s.Cron, cursor, now, got, want)
		}
	})
	// A year of minutes is not gone through one by one: this would take seconds each.
	at, err := times(scheduleOf("s", "* * * * *"))
	if err != nil {
		t.Fatal(err)
	}
	now := instant(t, "2026-03-01T00:00:40Z")
	for range 1000 {
		if got := due(at, jobs.OnceMissed, now.AddDate(-50, 0, 0), now); len(got) != 1 ||
			!got[0].Equal(instant(t, "2026-03-01T00:00:00Z")) {
			t.Fatal(got)
		}
	}
}

// TestCronOnce: however many agents come to the same times, late or early, each time has one job.
func TestCronOnce(t *testing.T) {
	srv, c := insideSchedules(t)
	s := scheduleOf("each", "* * * * *")
	s.From = instant(t, "2026-01-01T00:00:00Z")
	at, err := times(s)
	if err != nil {
		t.Fatal(err)
	}
	var all []*scheduler
	for range 5 {
		w := &scheduler{c: anotherSchedules(t, srv), log: slog.New(slog.DiscardHandler), all: map[string]*plan{}}
		w.all[s.Name] = &plan{Schedule: s, at: at}
		all = append(all, w)
	}
	var want []string
	for m := 1; m <= 5; m++ {
		come := s.From.Add(time.Duration(m) * time.Minute)
		want = append(want, jobs.RunID(s.Name, come))
		var turns sync.WaitGroup
		for i, w := range all {
			turns.Go(func() {
				// Agents check the time a few seconds apart. The last agent dies now and then, and
				// forgets.
				w.evaluate(t.Context(), come.Add(time.Duration(i)*time.Second))
				if i == 4 {
					w.all[s.Name] = &plan{Schedule: s, at: at}
				}
			})
		}
		turns.Wait()
	}
	if st, err := c.queue.Stats(t.Context(), jobs.PoolCPU); err != nil || st.Jobs != uint64(len(want)) {
		t.Errorf("%d jobs of %d times, %v", st.Jobs, len(want), err)
	}
	// An agent that comes to a time when its job is over, out of its queue, and its result has
	// expired.
	for _, id := range want {
		if n, err := c.conn.Purge(t.Context(), wire.JobStream(jobs.PoolCPU),
			wire.SourceOf(s.Job).Job(id)); err != nil || n != 1 {
			t.Fatalf("job %s: %d, %v", id, n, err)
		}
	}
	for m := range 5 {
		if err := c.fire(t.Context(), s, s.From.Add(time.Duration(m+1)*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range want {
		if there, err := c.queue.Known(t.Context(), id); there || err != nil {
			t.Errorf("job %s was submitted again: %v", id, err)
		}
	}
	if last, err := c.lastRun(t.Context(), s.Name); err != nil || !last.Equal(s.From.Add(5*time.Minute)) {
		t.Errorf("the last time was %v, %v", last, err)
	}
	// The marks of old times go.
	if err := c.fire(t.Context(), s, s.From.AddDate(0, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.conn.LastOnce(t.Context(), wire.WaitStream,
		wire.FiredSubject(s.Name, jobs.Stamp(s.From.Add(time.Minute)))); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("the mark of yesterday is there: %v", err)
	}
}

// TestCronByHand: a job that somebody has submitted under the id of a run is that run.
func TestCronByHand(t *testing.T) {
	_, c := insideSchedules(t)
	s := scheduleOf("hand", "* * * * *")
	come := instant(t, "2026-01-01T00:00:00Z")
	if err := c.queue.Submit(t.Context(), jobs.Job{
		Version: jobs.Version, ID: "p", Pool: jobs.PoolCPU, Kind: "k",
		Spec: json.RawMessage("1"),
	}); err != nil {
		t.Fatal(err)
	}
	j := s.Run(come)
	j.After = []string{"p"}
	if err := c.queue.Submit(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.fire(t.Context(), s, come); err != nil {
			t.Fatal(err)
		}
	}
	if last, err := c.lastRun(t.Context(), s.Name); err != nil || !last.Equal(come) {
		t.Errorf("the last time was %v, %v", last, err)
	}
}

// FuzzSchedule: a stranger's record of a schedule is followed or refused, and looking for its times
// ends soon.
func FuzzSchedule(f *testing.F) {
	f.Add([]byte(`{"v":1,"name":"n","cron":"* * * * *","zone":"UTC","missed":"once","job":{"pool":"cpu","kind":"k",`+
		`"spec":1}}`), int64(0))
	f.Add([]byte(`{"v":1,"name":"n","cron":"0 0 29 2 *","zone":"Europe/Berlin","missed":"once",`+
		`"from":"0001-01-01T00:00:00Z","job":{"pool":"cpu","kind":"k","spec":1}}`), int64(1e9))
	f.Add([]byte(`{"v":1,"name":"n","cron":"TZ=/ * * * *","zone":"../../etc","from":"9999-12-31T23:59:59Z",`+
		`"job":{"pool":"cpu","kind":"k"}}`), int64(-1))
	f.Add([]byte(`{"v":1,"name":"n","cron":"*/99999999999 1-0 31 2 ?","job":{}}`), int64(4e9))
	f.Fuzz(func(t *testing.T, data []byte, now int64) {
		e, err := readSchedule("n", data)
		jobstest.Typed(t, err)
		if err != nil {
			return
		}
		at := time.Unix(now%4e9, 0)
		run := due(e.at, e.Missed, e.From, at)
		if len(run) > int(grace/time.Minute)+1 {
			t.Fatalf("%d runs at once of %s", len(run), data)
		}
		for _, when := range run {
			if when.After(at) || when.Second() != 0 {
				t.Fatalf("a run at %v, at %v", when, at)
			}
			if err := e.Run(when).Validate(); err != nil {
				t.Fatalf("a run that is no job: %v", err)
			}
		}
	})
}
