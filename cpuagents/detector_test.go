package cpuagents_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// detectorJob makes a job of a detector over keyed rows, whose decisions go to a table.
func detectorJob(t *testing.T, name string, most int, sources []source.Series,
	change func(*cpuagents.DetectorSpec),
) jobs.Job {
	t.Helper()
	parsed, err := swarm.Parse("swarm.yaml", []byte("name: "+name+"\nagents_per_group: 16\nkey: id\n"+
		"cell: {kind: predictor, params: {alarm: 0.25, suspect: 0.2}}\n"))
	if err != nil {
		t.Fatalf("swarm.Parse: %v", err)
	}
	parsed.MaxEntities, parsed.GroupCount, parsed.Observations.Late = most, most, swarm.Drop
	text, err := json.Marshal(parsed)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	spec := cpuagents.DetectorSpec{
		Name: name, Spec: text, Explain: true, Candidates: parsed.Vote.Candidates, Sources: sources, BatchRows: 100,
		Columns: rows.ColumnSpec{
			Timestamp: "timestamp", Features: []string{"value"}, Key: []string{"id"}, MaxEntities: most,
		},
		Sinks: []sink.Spec{{URI: "sqlite:dir/" + name + ".db?table=decisions"}},
	}
	if change != nil {
		change(&spec)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	return jobs.Job{
		Version: jobs.Version, ID: name + "-r1", Pool: jobs.PoolCPU, Kind: cpuagents.KindDetector, Spec: data,
	}
}

// running is a job of a detector that runs.
type running struct {
	stop     context.CancelCauseFunc
	progress atomic.Pointer[cpuagents.DetectorProgress]
	ended    chan error
	result   *cpuagents.DetectorProgress
}

// detect starts a job.
func (c *cluster) detect(t *testing.T, job jobs.Job) *running {
	t.Helper()
	ctx, stop := context.WithCancelCause(t.Context())
	r := &running{stop: stop, ended: make(chan error, 1)}
	go func() {
		out, err := c.streamer.HandleDetector(ctx, job, func(v any) {
			p := v.(cpuagents.DetectorProgress)
			r.progress.Store(&p)
		})
		r.result, _ = out.(*cpuagents.DetectorProgress)
		r.ended <- err
	}()
	return r
}

// end ends a job with a cause.
func (r *running) end(t *testing.T, cause error) {
	t.Helper()
	r.stop(cause)
	select {
	case err := <-r.ended:
		// An attempt that is stopped may be fenced before it learns of that: by another one, or by
		// its own append that was cancelled and stored.
		if finish := errors.Is(cause, jobs.ErrFinish); finish && err != nil || !finish && !errors.Is(err, cause) &&
			!givenOutAgain(err) {
			t.Fatalf("the job ends with %v, after %v", err, cause)
		}
	case <-time.After(time.Minute):
		t.Fatal("the job does not end")
	}
}

// givenOutAgain reports whether the queue gives out a job again after an attempt that ends with
// err. One of two attempts that run at once is fenced, or finds a swarm that the other attempt has
// half made.
func givenOutAgain(err error) bool {
	return errors.Is(err, jobs.ErrFenced) || jobs.Retryable(err)
}

// decided returns the number of rows of the table of decisions; 0 if there is none yet.
func (c *cluster) decided(t *testing.T, name string) (n int) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(c.dir, name+".db"))
	if err != nil {
		t.Fatalf("sql.Open: %v", err)
	}
	defer db.Close()
	if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM decisions").Scan(&n); err != nil &&
		!strings.Contains(err.Error(), "no such table") && !strings.Contains(err.Error(), "locked") {
		if _, missing := os.Stat(filepath.Join(c.dir, name+".db")); missing == nil {
			t.Fatalf("count the decisions: %v", err)
		}
	}
	return n
}

// decisionsOf returns the decisions in the table of a detector, without the job.
func (c *cluster) decisionsOf(t *testing.T, name string) (all []string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(c.dir, name+".db"))
	if err != nil {
		t.Fatalf("sql.Open: %v", err)
	}
	defer db.Close()
	found, err := db.QueryContext(t.Context(),
		`SELECT id, "timestamp", value, score, decision, round, dropped, "expected.value", "low.value", "high.value",
			feature, direction, kind, before FROM decisions`)
	if err != nil {
		if _, serr := os.Stat(filepath.Join(c.dir, name+".db")); serr != nil ||
			strings.Contains(err.Error(), "no such table") || strings.Contains(err.Error(), "locked") {
			return nil
		}
		t.Fatalf("db.Query: %v", err)
	}
	defer found.Close()
	for found.Next() {
		var v [14]any
		into := make([]any, len(v))
		for i := range v {
			into[i] = &v[i]
		}
		if err := found.Scan(into...); err != nil {
			t.Fatalf("found.Scan: %v", err)
		}
		all = append(all, fmt.Sprint(v[:]...))
	}
	if err := found.Err(); err != nil {
		t.Fatalf("found.Err: %v", err)
	}
	return all
}

// awaitDecisions waits until the table of a detector has n rows.
func (c *cluster) awaitDecisions(t *testing.T, name string, n int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d decisions of %s", n, name), func() bool { return c.decided(t, name) >= n })
}

// awaitJournal waits until the journal of the first source of a detector has an entry.
func (c *cluster) awaitJournal(t *testing.T, name string) {
	t.Helper()
	testkit.Until(t, "the journal of "+name, func() bool {
		record, err := c.conn.Swarms.Swarm(t.Context(), name)
		if err != nil {
			return false
		}
		last, err := c.conn.Swarms.Log(record.Key(), 1, swarms.In).Last(t.Context())
		return err == nil && last.Seq > 0
	})
}

// randomPause waits for a random time of less than most milliseconds. So a stop that follows comes
// at any moment of an attempt.
func randomPause(t *testing.T, r *rand.Rand, most int) {
	t.Helper()
	select {
	case <-time.After(time.Duration(r.IntN(most)) * time.Millisecond):
	case <-t.Context().Done():
	}
}

// allDecisions waits until the table of a job's detector has n rows, and returns the attempt that
// runs then. An attempt that an earlier one has fenced is followed by the next one, as the queue
// gives out the job again.
func (c *cluster) allDecisions(t *testing.T, now *running, job jobs.Job, name string, n int) *running {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d decisions of %s", n, name), func() bool {
		select {
		case err := <-now.ended:
			if !givenOutAgain(err) {
				t.Fatalf("an attempt ends with %v", err)
			}
			now = c.detect(t, job)
		default:
		}
		return c.decided(t, name) >= n
	})
	return now
}

// pushLines pushes rows of NDJSON.
func (c *cluster) pushLines(t *testing.T, name string, lines ...string) {
	t.Helper()
	if _, err := c.conn.Streams.Push(t.Context(), name, "", [][]byte{[]byte(strings.Join(lines, ""))}); err != nil {
		t.Fatalf("Push: %v", err)
	}
}

// detectorRows returns rows of 30 entities in random order.
func detectorRows(n int) (all []string) {
	r := rand.New(rand.NewPCG(11, 11))
	for i := range n {
		v := r.IntN(7)
		if r.IntN(400) == 0 {
			v += 500
		}
		all = append(all, fmt.Sprintf("{\"timestamp\":%d,\"value\":%d,\"id\":\"d%d\"}\n", 1700000000+i, v, r.IntN(30)))
	}
	return all
}

// inShards gives the swarm of a detector some shards.
func inShards(t *testing.T, shards int) func(*cpuagents.DetectorSpec) {
	return func(s *cpuagents.DetectorSpec) {
		t.Helper()
		parsed, err := swarm.FromJSON(s.Spec)
		if err != nil {
			t.Fatalf("swarm.FromJSON: %v", err)
		}
		parsed.Shards = shards
		if s.Spec, err = json.Marshal(parsed); err != nil {
			t.Fatalf("json.Marshal: %v", err)
		}
	}
}

// TestDetectorContinues: a detector whose attempts are stopped at random moments, also while the
// next one runs already, decides each row once, as one that is never stopped.
func TestDetectorContinues(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	all := detectorRows(4000)
	src := func(name string) []source.Series {
		return []source.Series{{Name: "p", URI: "push:" + name, Push: &source.PushSpec{BatchSeconds: 0.005}}}
	}
	whole := c.detect(t, detectorJob(t, "whole", 40, src("whole"), nil))
	for part := range slices.Chunk(all, 50) {
		c.pushLines(t, "whole", part...)
	}
	c.awaitDecisions(t, "whole", len(all))
	whole.end(t, jobs.ErrFinish)
	rows := uint64(len(all))
	if p := whole.result; p.Rows != rows || p.Decisions != rows || p.Entities != 30 || p.Anomalies == 0 {
		t.Errorf("the result is %+v", p)
	}

	for _, shards := range []int{1, 3} {
		if testing.Short() && shards == 1 {
			continue // a quarter of a minute with the race detector
		}
		c.stopDetector(t, shards, all)
	}
}

// stopAtRandom waits for a random time, and ends an attempt in one of five calls: by a drain, or
// while the next attempt runs already. It returns the attempt that runs then.
func (c *cluster) stopAtRandom(t *testing.T, r *rand.Rand, now *running, job jobs.Job) *running {
	t.Helper()
	randomPause(t, r, 20)
	if r.IntN(5) > 0 {
		return now
	}
	if r.IntN(3) > 0 {
		now.end(t, jobs.ErrDrain)
		return c.detect(t, job)
	}
	// The server gives the job out again while this attempt still runs. One of the two is fenced.
	next := c.detect(t, job)
	randomPause(t, r, 30)
	now.end(t, jobs.ErrDrain)
	select {
	case err := <-next.ended:
		if !givenOutAgain(err) {
			t.Fatalf("an attempt ends with %v", err)
		}
		return c.detect(t, job)
	default:
		return next
	}
}

// pushWithStops pushes rows in parts to a detector that is stopped at random moments, and lets it
// finish when all are decided. It returns the last attempt.
func (c *cluster) pushWithStops(
	t *testing.T, r *rand.Rand, job jobs.Job, name string, all []string, part int,
) (now *running, stops int) {
	t.Helper()
	now = c.detect(t, job)
	for lines := range slices.Chunk(all, part) {
		c.pushLines(t, name, lines...)
		if next := c.stopAtRandom(t, r, now, job); next != now {
			now = next
			stops++
		}
	}
	now = c.allDecisions(t, now, job, name, len(all))
	now.end(t, jobs.ErrFinish)
	return now, stops
}

// stopDetector is TestDetectorContinues for a detector with some shards. There is one called whole
// that was not stopped.
func (c *cluster) stopDetector(t *testing.T, shards int, all []string) {
	t.Helper()
	name := fmt.Sprint("stopped", shards)
	r := rand.New(rand.NewPCG(12, uint64(shards)))
	job := detectorJob(t, name, 40, pushSource(name), inShards(t, shards))
	now, stops := c.pushWithStops(t, r, job, name, all, 50)
	got, want := c.decisionsOf(t, name), c.decisionsOf(t, "whole")
	if shards > 1 { // the order is kept within an entity only
		slices.Sort(got)
		slices.Sort(want)
	}
	if !slices.Equal(got, want) || stops < 5 {
		slices.Sort(got)
		slices.Sort(want)
		t.Errorf("%d shards: after %d stops there are %d decisions, want %d; sorted they are equal: %v", shards, stops,
			len(got), len(want), slices.Equal(got, want))
	}
	if p := now.result; p.Rows != uint64(len(all)) || p.Decisions != p.Rows || p.Entities != 30 {
		t.Errorf("the result after the stops is %+v", p)
	}
	record, err := c.conn.Swarms.Swarm(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	first := 1
	if shards > 1 {
		first = 128
	}
	journal := c.conn.Swarms.Log(record.Key(), first, swarms.In)
	now = c.detect(t, job)
	for i := range 4 { // a document each
		c.pushLines(t, name, fmt.Sprintf("{\"timestamp\":1800000000,\"value\":1,\"id\":%d}\n", i))
		c.awaitDecisions(t, name, len(all)+i+1)
	}
	now.end(t, jobs.ErrFinish)
	last, err := journal.Last(t.Context())
	if err != nil || last.Seq < 12 {
		t.Fatalf("the journal ends with entry %d: %v", last.Seq, err)
	}
	rd, err := journal.Read(t.Context(), last.Seq-6)
	if err != nil {
		t.Fatal(err)
	}
	defer rd.Close()
	if e, err := rd.Next(t.Context()); err == nil || !strings.Contains(err.Error(), "was trimmed") {
		t.Errorf("the journal has entry %d of %d: %v", e.Seq, last.Seq, err)
	}
}

// TestDetectorBadRows: late rows, duplicates, rows of the wrong type, without a key, with a key of
// 10 MB and of too many entities are counted and logged, and the remaining rows are decided.
func TestDetectorBadRows(t *testing.T) {
	c := newCluster(t)
	d := c.detect(t, detectorJob(t, "bad", 2, []source.Series{{Name: "p", URI: "push:bad"}}, nil))
	row := func(at any, value, id string) string {
		return fmt.Sprintf("{\"timestamp\":%v,\"value\":%s,\"id\":%s}\n", at, value, id)
	}
	c.pushLines(t, "bad",
		row(5, "1", `"a"`), row(5, "1", `"b"`), row(4, "1", `"a"`), row(6, "1", `"c"`), row(7, `"x"`, `"a"`),
		row(8, "1", "null"), "{\"timestamp\":9,\"value\":1}\n", row(9, "1", `"`+strings.Repeat("k", 300_000)+`"`),
		row(`"soon"`, "1", `"a"`), "not json\n", row(10, "1", `"b"`))
	c.awaitDecisions(t, "bad", 4)
	d.end(t, jobs.ErrFinish)
	want := cpuagents.DetectorProgress{
		Rows: 4, Rejected: 7, Decisions: 3, Dropped: cpuagents.Dropped{Late: 1}, Entities: 2,
		Keyless: feed.Keyless{WithoutKey: 3, BeyondEntities: 1},
	}
	got := *d.result
	if got.LastDecision.IsZero() || !strings.HasPrefix(got.LastReject, "p: row ") {
		t.Errorf("the last decision is of %v, and the last reject is %q", got.LastDecision, got.LastReject)
	}
	got.LatencyP50, got.LatencyP99, got.Rate, got.LastDecision, got.LastReject = 0, 0, 0, time.Time{}, ""
	if got != want {
		t.Errorf("the result is %+v, want %+v", got, want)
	}
	// The counts are about the detector, not about one job.
	d = c.detect(t, detectorJob(t, "bad", 2, []source.Series{{Name: "p", URI: "push:bad"}}, nil))
	c.pushLines(t, "bad", row(11, "1", `"b"`), row(12, "1", `"z"`))
	c.awaitDecisions(t, "bad", 5)
	d.end(t, jobs.ErrFinish)
	if p := d.result; p.Rows != 5 || p.Rejected != 8 || p.Keyless.BeyondEntities != 2 || p.Decisions != 4 {
		t.Errorf("the second result is %+v", p)
	}
}

// TestDetectorDeadDestination: a detector whose Alertmanager is away decides and pauses as before.
// When it continues, alerts that were held are sent.
func TestDetectorDeadDestination(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	c := newCluster(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	job := detectorJob(t, "alerts", 40, []source.Series{{
		Name: "p", URI: "push:alerts", Push: &source.PushSpec{BatchSeconds: 0.005},
	}}, func(s *cpuagents.DetectorSpec) {
		for range 3 {
			s.Sinks = append(s.Sinks, sink.Spec{URI: "alertmanager:http://" + address, Backoff: 0.01})
		}
	})
	d := c.detect(t, job)
	all := detectorRows(4000)
	for part := range slices.Chunk(all, 500) {
		c.pushLines(t, "alerts", part...)
	}
	c.awaitDecisions(t, "alerts", len(all))
	d.end(t, jobs.ErrFinish) // waits for none of the receivers, which stay away
	if p := d.result; p.Decisions != uint64(len(all)) || p.Anomalies == 0 {
		t.Fatalf("the result is %+v", p)
	}
	var alerts atomic.Int64
	server := &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var got []struct{ Labels map[string]string }
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil || r.URL.Path != "/api/v2/alerts" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		for _, a := range got {
			if a.Labels["detector"] == "alerts" && a.Labels["id"] != "" {
				alerts.Add(1)
			}
		}
	})}
	if l, err = net.Listen("tcp", address); err != nil {
		t.Skipf("another process has the port: %v", err)
	}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	again := c.detect(t, job)
	testkit.Until(t, "the alerts that were held", func() bool { return alerts.Load() > 0 })
	again.end(t, jobs.ErrFinish)
	if got := len(c.decisionsOf(t, "alerts")); got != len(all) {
		t.Errorf("the table has %d decisions, want %d", got, len(all))
	}
}

// TestDetectorRefuses: what a detector cannot do is an error with a cure, and makes no swarm.
func TestDetectorRefuses(t *testing.T) {
	c := newCluster(t)
	ok := []source.Series{{Name: "p", URI: "push:p"}}
	for name, one := range map[string]struct {
		sources []source.Series
		change  func(*cpuagents.DetectorSpec)
		want    string
	}{
		"no-source":   {nil, nil, "0 sources: use 1 to 64"},
		"a-file":      {[]source.Series{{Name: "f", URI: "file:dir/a.csv"}}, nil, "cannot be read for ever"},
		"twice":       {append(slices.Clone(ok), ok...), nil, "needs a name of its own"},
		"no-features": {ok, func(s *cpuagents.DetectorSpec) { s.Columns.Features = nil }, "must not be empty"},
		"bad-sink": {ok, func(s *cpuagents.DetectorSpec) {
			s.Sinks = []sink.Spec{{URI: "ftp:x"}}
		}, "write nats:STREAM/SUBJECT"},
	} {
		job := detectorJob(t, name, 2, one.sources, one.change)
		_, err := c.streamer.HandleDetector(t.Context(), job, func(any) {})
		if err == nil || !strings.Contains(err.Error(), one.want) {
			t.Errorf("%s: %v, want %s", name, err, one.want)
		}
		if _, err := c.conn.Swarms.Swarm(t.Context(), name); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("%s: there is a swarm: %v", name, err)
		}
	}
	d := c.detect(t, detectorJob(t, "same", 2, ok, nil))
	c.pushLines(t, "p", "{\"timestamp\":5,\"value\":1,\"id\":1}\n")
	c.awaitDecisions(t, "same", 1)
	d.end(t, jobs.ErrFinish)
	_, err := c.streamer.HandleDetector(t.Context(), detectorJob(t, "same", 3, ok, nil), func(any) {})
	if err == nil || !strings.Contains(err.Error(), "with another specification") {
		t.Errorf("another specification: %v", err)
	}
}

// TestDetectorLatency: the latency of a row begins when its message comes to the agent, and not
// when the document with it is complete.
func TestDetectorLatency(t *testing.T) {
	c := newCluster(t)
	d := c.detect(t, detectorJob(t, "late", 4, []source.Series{{
		Name: "p", URI: "push:late", Push: &source.PushSpec{BatchSeconds: 0.4},
	}}, nil))
	c.pushLines(t, "late", "{\"timestamp\":5,\"value\":1,\"id\":1}\n")
	c.awaitDecisions(t, "late", 1)
	d.end(t, jobs.ErrFinish)
	if p := d.result; p.LatencyP50 < 400 || p.LatencyP50 > 20_000 {
		t.Errorf("a row that waits 400 ms for its document has a latency of %v ms", p.LatencyP50)
	}
}

// TestDetectorFinishBeforeBegin: a job that is asked to finish before it begins, since no agent had
// it at the time of the pause, ends in order with the counts, and its sinks have all decisions.
func TestDetectorFinishBeforeBegin(t *testing.T) {
	c := newCluster(t)
	job := detectorJob(t, "pause", 4, []source.Series{{Name: "p", URI: "push:pause"}}, func(s *cpuagents.DetectorSpec) {
		s.Sinks = append(s.Sinks, sink.Spec{URI: "file:dir/pause.parts"})
	})
	d := c.detect(t, job)
	c.pushLines(t, "pause", "{\"timestamp\":5,\"value\":1,\"id\":1}\n")
	c.awaitDecisions(t, "pause", 1)
	d.end(t, jobs.ErrDrain)
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(jobs.ErrFinish)
	out, err := c.streamer.HandleDetector(ctx, job, func(any) {})
	if p, is := out.(*cpuagents.DetectorProgress); err != nil || !is || p.Rows != 1 || p.Decisions != 1 {
		t.Fatalf("the job ends with %+v, %v", out, err)
	}
	parts, err := filepath.Glob(filepath.Join(c.dir, "pause.parts", "part-*"))
	if err != nil || len(parts) != 1 {
		t.Errorf("the folder has %v, %v", parts, err)
	}
}

// TestDetectorStale: an attempt without rows ends when a later one has taken over.
func TestDetectorStale(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	b, _ := broker(t)
	job := detectorJob(t, "stale", 4, []source.Series{{Name: "k", URI: "kafka://" + b.ListenAddrs()[0] + "/t"}}, nil)
	first := c.detect(t, job)
	c.awaitJournal(t, "stale") // it has stored where the topic begins
	later := c.detect(t, job)
	select {
	case err := <-first.ended:
		if !errors.Is(err, jobs.ErrFenced) {
			t.Errorf("the first attempt ends with %v", err)
		}
	case <-time.After(2 * time.Minute):
		t.Fatal("the first attempt does not end")
	}
	later.end(t, jobs.ErrFinish)
}
