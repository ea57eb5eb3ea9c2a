package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/inputtest"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// attempts is a streamer with a queue and no GPU agent.
type attempts struct {
	*Streamer
	conn *natsq.Conn
	dir  string
}

func newAttempts(t *testing.T) *attempts {
	t.Helper()
	a := &attempts{conn: jobstest.Connected(t, natsq.Connect), dir: t.TempDir()}
	files, err := files.New(files.Options{
		Roots: map[files.Root]string{{Name: "dir"}: a.dir}, Objects: a.conn.Objects,
		Scratch: t.TempDir(),
	})
	if err != nil {
		t.Fatalf("files.New: %v, want no error", err)
	}
	t.Cleanup(func() { _ = files.Close() })
	if a.Streamer, err = New(Options{
		Queue: a.conn.StreamJobs(), Files: files, Logger: slog.New(slog.DiscardHandler),
		Egress: fixture.Loopback(t),
	}); err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	fixture.Write(t, filepath.Join(a.dir, "s.csv"), "timestamp,value\n1,1\n")
	fixture.Write(t, filepath.Join(a.dir, "m"), `[{"name":"s","uri":"file:dir/s.csv"}]`)
	return a
}

// job is one whose swarm no agent serves.
func (a *attempts) job(t *testing.T, id string, change func(*StreamSpec)) jobs.Job {
	t.Helper()
	spec := StreamSpec{
		Name: "n", Spec: json.RawMessage(`{"name":"n"}`), Candidates: []string{"normal", "odd"},
		Columns: inputtest.OneFeature, Manifest: "file:dir/m", Output: "file:dir/o.csv", Rejects: "file:dir/r",
		Summary: "file:dir/u",
	}
	if change != nil {
		change(&spec)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	return jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: KindStream, Spec: data}
}

// try makes an attempt at a job up to where it would read, and returns it.
func (a *attempts) try(t *testing.T, job jobs.Job) (*stream, error) {
	t.Helper()
	st := newStream(a.of(job), job.ID, func(any) {})
	ctx, cancel := context.WithCancelCause(fixture.Within(t))
	cancel(jobs.ErrDrain) // it would wait for an agent
	_, err := st.attempt(ctx, job)
	return st, err
}

// TestStreamSpecs: which specs an attempt takes, at the bounds of each field.
func TestStreamSpecs(t *testing.T) {
	a := newAttempts(t)
	series := func(n int, uri string) string {
		var all []source.Series
		for i := range n {
			all = append(all, source.Series{Name: fmt.Sprint(i), URI: uri})
		}
		data, err := json.Marshal(all)
		if err != nil {
			t.Fatalf("json.Marshal: %v, want no error", err)
		}
		return string(data)
	}
	for n, name := range map[int]string{maxRemote: "remote64", maxRemote + 1: "remote65"} {
		fixture.Write(t, filepath.Join(a.dir, name), series(n, "http://127.0.0.1:1/"))
	}
	fixture.Write(t, filepath.Join(a.dir, "bad"), `[{"name":"s","uri":"file:dir/s.csv","format":"xls"}]`)
	fixture.Write(t, filepath.Join(a.dir, "badremote"), `[{"name":"s","uri":"http://127.0.0.1:1/","format":"xls"}]`)
	fixture.Write(t, filepath.Join(a.dir, "columns"), `[{"name":"s","uri":"file:dir/t.csv"}]`)
	fixture.Write(t, filepath.Join(a.dir, "t.csv"), "time,value\n1,1\n")
	sinks := func(n int) (all []sink.Spec) {
		for i := range n {
			all = append(all, sink.Spec{URI: fmt.Sprintf("file:dir/sink%d", i)})
		}
		return all
	}
	const begun = "drain" // it got as far as the queue, which is not asked any more
	for name, c := range map[string]struct {
		change func(*StreamSpec)
		want   string
	}{
		"plain": {nil, begun}, "1 row": {func(s *StreamSpec) { s.BatchRows = 1 }, begun},
		"4096 rows": {func(s *StreamSpec) { s.BatchRows = 4096 }, begun},
		"4097 rows": {func(s *StreamSpec) { s.BatchRows = 4097 }, "batch_rows must be 1 to 4096"},
		"-1 rows":   {func(s *StreamSpec) { s.BatchRows = -1 }, "batch_rows must be 1 to 4096"},
		"no candidates": {func(s *StreamSpec) { s.Candidates = nil }, "candidates and columns.features must not be " +
			"empty"}, "no features": {func(s *StreamSpec) { s.Columns.Features = nil }, "must not be empty"},
		"a format":          {func(s *StreamSpec) { s.OutputFormat = "parquet" }, begun},
		"no format":         {func(s *StreamSpec) { s.OutputFormat = "xls" }, `output: format "xls"`},
		"an extension":      {func(s *StreamSpec) { s.Output = "file:dir/o.parquet.gz" }, "packs its own pages"},
		"no manifest":       {func(s *StreamSpec) { s.Manifest = "file:dir/none" }, "there is no such file"},
		"another's":         {func(s *StreamSpec) { s.Manifest = "file:root/m" }, "knows no folder"},
		"a source's format": {func(s *StreamSpec) { s.Manifest = "file:dir/bad" }, `series s: format "xls"`},
		"a remote one's":    {func(s *StreamSpec) { s.Manifest = "file:dir/badremote" }, `series s: format "xls"`},
		"columns":           {func(s *StreamSpec) { s.Manifest = "file:dir/columns" }, `no column "timestamp"`},
		"64 remote":         {func(s *StreamSpec) { s.Manifest = "file:dir/remote64" }, begun},
		"65 remote": {
			func(s *StreamSpec) { s.Manifest = "file:dir/remote65" },
			"it has more than 64 sources that are not files",
		},
		"a sink":     {func(s *StreamSpec) { s.Sinks = sinks(1) }, begun},
		"most sinks": {func(s *StreamSpec) { s.Sinks = sinks(maxSinks) }, begun},
		"a sink more": {
			func(s *StreamSpec) { s.Sinks = sinks(maxSinks + 1) },
			fmt.Sprintf("it has more than %d sinks", maxSinks),
		},
		"a webhook": {
			func(s *StreamSpec) { s.Webhook = &sink.WebhookSpec{URL: "http://127.0.0.1:1/"} },
			begun,
		},
		"a webhook elsewhere": {
			func(s *StreamSpec) { s.Webhook = &sink.WebhookSpec{URL: "http://10.0.0.1/"} },
			"--egress",
		},
		"a sink elsewhere": {
			func(s *StreamSpec) { s.Sinks = append(sinks(1), sink.Spec{URI: "s3://bucket/x"}) },
			"--egress",
		},
	} {
		_, err := a.try(t, a.job(t, "bounds", c.change))
		var e *jobs.Error
		if c.want == begun {
			if err == nil || errors.As(err, &e) && e.Code == jobs.CodeInvalid {
				t.Errorf("%s: %v, want an error of another class than %v", name, err, jobs.CodeInvalid)
			}
			continue
		}
		if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || !strings.Contains(name, "manifest") &&
			!strings.Contains(name, "another") && !strings.Contains(name, "columns") && e.Code != jobs.CodeInvalid {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	job := a.job(t, "bounds", nil)
	job.Spec = json.RawMessage(`{"candidates":1}`)
	if _, err := a.try(t, job); err == nil || !strings.Contains(err.Error(), "job bounds: stream spec: ") {
		t.Errorf("a.try: %v, want %q in its text", err, "job bounds: stream spec: ")
	}
	st, _ := a.try(t, a.job(t, "bounds", func(s *StreamSpec) { s.Output = "file:dir/o" }))
	if st.spec.BatchRows != 4096 || st.spec.OutputFormat != "ndjson" || len(st.series) != 1 ||
		st.counts.summary[0].Name != "s" {
		t.Errorf("%+v, want the defaults 4096 and ndjson, and the series s", st.spec)
	}
}

// troubledQueue is a queue whose calls fail as they are told.
type troubledQueue struct {
	Queue
	swarm, create, remove error
	removed               []string
	created               func()
}

func (q *troubledQueue) Swarm(ctx context.Context, id string) (swarms.Swarm, error) {
	if q.swarm != nil {
		return swarms.Swarm{}, q.swarm
	}
	return q.Queue.Swarm(ctx, id)
}

func (q *troubledQueue) CreateSwarm(ctx context.Context, s swarms.Swarm) error {
	if call := q.created; call != nil {
		q.created = nil
		call()
	}
	if q.create != nil {
		return q.create
	}
	return q.Queue.CreateSwarm(ctx, s)
}

func (q *troubledQueue) RemoveSwarm(ctx context.Context, s swarms.Swarm) error {
	q.removed = append(q.removed, s.ID)
	if q.remove != nil {
		return q.remove
	}
	return q.Queue.RemoveSwarm(ctx, s)
}

// TestClaim: an attempt has the swarm of an earlier one, makes one where there is none or where it
// ends, and leaves the swarms of others.
func TestClaim(t *testing.T) {
	a, ctx := newAttempts(t), fixture.Within(t)
	q := &troubledQueue{Queue: a.conn.StreamJobs()}
	of := func(id string) *stream {
		s := newStream(&Streamer{Options: Options{Queue: q, Logger: a.Logger}}, id, nil)
		s.series = make([]source.Series, 3)
		s.spec.Name, s.spec.Spec = "n", json.RawMessage(`{"name":"n"}`)
		return s
	}
	first, err := of("a").claim(ctx)
	if err != nil || first.ID != "a" || first.Owner != "a" || first.Groups != 3 || first.Name != "n" ||
		first.Nonce == "" || string(first.Spec) != `{"name":"n"}` || first.Created.IsZero() {
		t.Fatalf("record %+v, error %v; want a new one of job a with 3 groups", first, err)
	}
	if again, err := of("a").claim(ctx); err != nil || !again.Same(first) {
		t.Errorf("record %+v, error %v; want the first one, %+v", again, err, first)
	}
	if _, err := a.conn.Swarms.ChangeSwarm(ctx, first, func(s *swarms.Swarm) { s.Ending = true }); err != nil {
		t.Fatalf("Swarms.ChangeSwarm: %v, want no error", err)
	}
	next, err := of("a").claim(ctx)
	if err != nil || next.Same(first) || next.Ending {
		t.Errorf("record %+v, error %v; want another one than %+v", next, err, first)
	}
	// Another attempt makes it between the question and the answer.
	var other swarms.Swarm
	q.created = func() {
		if other, err = of("b").claim(ctx); err != nil {
			t.Errorf("claim: %v, want no error", err)
		}
	}
	if got, err := of("b").claim(ctx); err != nil || !got.Same(other) {
		t.Errorf("%+v, want %+v, %v", got, other, err)
	}
	for name, s := range map[string]swarms.Swarm{"nobody's": {ID: "c"}, "another's": {ID: "d", Owner: "x"}} {
		s.Version, s.Nonce, s.Name, s.Spec, s.Groups = jobs.Version, swarms.NewNonce(), "n", json.RawMessage(`{}`), 1
		if s.Owner == "" {
			s.Shards = 1
		}
		if err := a.conn.Swarms.CreateSwarm(ctx, s); err != nil {
			t.Fatalf("create swarm %s: %v, want no error", name, err)
		}
		var e *jobs.Error
		if got, err := of(s.ID).claim(ctx); !errors.As(err, &e) || e.Code != jobs.CodeInvalid || got.ID != "" ||
			!strings.Contains(err.Error(), "submit the job with another id") {
			t.Errorf("%s: record %+v, error %v; want none, and code %v", name, got, err, jobs.CodeInvalid)
		}
	}
	q.swarm = jobs.ErrUnavailable
	if _, err := of("a").claim(ctx); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("claim: %v, want %v", err, jobs.ErrUnavailable)
	}
	q.swarm, q.create = nil, jobs.ErrDenied
	if _, err := of("e").claim(ctx); !errors.Is(err, jobs.ErrDenied) {
		t.Errorf("claim: %v, want %v", err, jobs.ErrDenied)
	}
}

// TestGone: a swarm is gone when there is none of the id, another one, or one that ends; one that
// cannot be asked for is not.
func TestGone(t *testing.T) {
	a, ctx := newAttempts(t), fixture.Within(t)
	q := &troubledQueue{Queue: a.conn.StreamJobs()}
	s := newStream(&Streamer{Options: Options{Queue: q, Logger: a.Logger}}, "a", nil)
	s.series = make([]source.Series, 1)
	s.spec.Name, s.spec.Spec = "n", json.RawMessage(`{"name":"n"}`)
	if s.gone(ctx) {
		t.Error("what was not claimed is gone")
	}
	var err error
	if s.record, err = s.claim(ctx); err != nil {
		t.Fatalf("s.claim: %v, want no error", err)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if s.gone(ended) {
		t.Error("it is gone when its context ends")
	}
	if q.swarm = jobs.ErrUnavailable; s.gone(ctx) {
		t.Error("it is gone while the server is away")
	}
	q.swarm = nil
	changed, err := a.conn.Swarms.ChangeSwarm(ctx, s.record, func(s *swarms.Swarm) { s.Ending = true })
	if err != nil || !s.gone(ctx) {
		t.Errorf("it ends: %v", err)
	}
	if err := a.conn.Swarms.RemoveSwarm(ctx, changed); err != nil || !s.gone(ctx) {
		t.Errorf("it was removed: %v", err)
	}
	other := newStream(s.agent, s.id, nil)
	if other.record, err = s.claim(ctx); err != nil || !s.gone(ctx) || other.gone(ctx) {
		t.Errorf("another was made: %v", err)
	}
}

// TestClean: what is over leaves nothing; a swarm of another owner stays, and so does what the next
// attempt has made.
func TestClean(t *testing.T) {
	a, ctx := newAttempts(t), fixture.Within(t)
	q := &troubledQueue{Queue: a.conn.StreamJobs()}
	var log strings.Builder
	of := func(id string) *stream {
		s := newStream(&Streamer{Options: Options{Queue: q, Logger: slog.New(slog.NewTextHandler(&log, nil))}}, id, nil)
		s.series = make([]source.Series, 1)
		s.spec.Name, s.spec.Spec = "n", json.RawMessage(`{"name":"n"}`)
		return s
	}
	there := func(id string) bool {
		_, err := a.conn.Swarms.Swarm(ctx, id)
		return err == nil
	}
	steps := 0
	step := func(context.Context) error { steps++; return nil }
	s := of("a")
	var err error
	if s.record, err = s.claim(ctx); err != nil {
		t.Fatalf("s.claim: %v, want no error", err)
	}
	s.remove = append(s.remove, func(context.Context) error { steps++; return errors.New("the consumer is busy") },
		step)
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if s.clean(ended, false); there("a") || steps != 2 || !strings.Contains(log.String(), "the consumer is busy") {
		t.Errorf("%d steps, its swarm is there: %v, log %s", steps, there("a"), log.String())
	}
	log.Reset()
	// An attempt that has not claimed the swarm removes the swarm of an earlier attempt.
	if _, err := of("b").claim(ctx); err != nil {
		t.Fatalf("claim: %v, want no error", err)
	}
	if of("b").clean(ctx, false); there("b") {
		t.Error("the swarm of an earlier attempt is there")
	}
	q.removed = nil
	if of("b").clean(ctx, false); len(q.removed) != 0 || log.Len() != 0 {
		t.Errorf("removed %v, log %s", q.removed, log.String())
	}
	if err := a.conn.Swarms.CreateSwarm(ctx, swarms.Swarm{
		Version: jobs.Version, ID: "c", Nonce: swarms.NewNonce(),
		Owner: "x", Name: "n", Spec: json.RawMessage(`{}`), Groups: 1,
	}); err != nil {
		t.Fatalf("Swarms.CreateSwarm: %v, want no error", err)
	}
	if of("c").clean(ctx, false); !there("c") || len(q.removed) != 0 {
		t.Error("the swarm of another job was removed")
	}
	q.swarm = jobs.ErrUnavailable
	if of("c").clean(ctx, false); !strings.Contains(log.String(), jobs.ErrUnavailable.Error()) {
		t.Errorf("log %q", log.String())
	}
	q.swarm = nil
	// It was removed, and another attempt has made the next one.
	s = of("d")
	if s.record, err = s.claim(ctx); err != nil {
		t.Fatalf("s.claim: %v, want no error", err)
	}
	if err := a.conn.Swarms.RemoveSwarm(ctx, s.record); err != nil {
		t.Fatalf("Swarms.RemoveSwarm: %v, want no error", err)
	}
	if _, err := of("d").claim(ctx); err != nil {
		t.Fatalf("claim: %v, want no error", err)
	}
	steps, s.remove = 0, append(s.remove, step)
	if s.clean(ctx, true); !there("d") || steps != 0 {
		t.Errorf("%d steps, the next swarm is there: %v", steps, there("d"))
	}
}

// TestAttemptEnds: a job that continues elsewhere keeps its swarm, a job that is over does not.
func TestAttemptEnds(t *testing.T) {
	a := newAttempts(t)
	usable := func() { // one look at the scratch folder, which finds it usable
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		a.Files.WatchScratch(ctx, slog.New(slog.DiscardHandler))
	}
	errs := map[string]error{
		"over": jobs.Errorf(jobs.CodeInvalid, "x"), "again": jobs.Retry(errors.New("x")),
		"fenced": jobs.ErrFenced, "unfit": fmt.Errorf("x: %w", jobs.ErrUnfit), "last": jobs.Retry(errors.New("x")),
	}
	for name, fault := range errs {
		t.Run(name, func(t *testing.T) {
			ctx := fixture.Within(t)
			q := &troubledQueue{Queue: a.conn.StreamJobs(), create: nil}
			s := *a.Streamer
			s.Queue = faultyLogs{q, fault}
			job := a.job(t, "ends-"+name, nil)
			job.LastAttempt = name == "last"
			_, err := s.Handle(ctx, job, func(any) {})
			if err == nil || !strings.Contains(err.Error(), fault.Error()) {
				t.Fatalf("%v, want %v", err, fault)
			}
			_, err = a.conn.Swarms.Swarm(ctx, job.ID)
			if kept := err == nil; kept != (name == "again" || name == "fenced" || name == "unfit") {
				t.Errorf("its swarm is there: %v, %v", kept, err)
			}
			if ready := a.Files.Ready(); (ready == nil) != (name != "unfit") {
				t.Errorf("the agent is ready: %v", ready)
			}
			usable()
		})
	}
	a.Files.NoteScratch(fmt.Errorf("full: %w", jobs.ErrUnfit))
	if _, err := a.Handle(fixture.Within(t), a.job(t, "ends-ready", nil), func(any) {}); !errors.Is(err,
		jobs.ErrUnfit) {
		t.Errorf("%v, want %v", err, jobs.ErrUnfit)
	}
	usable()
	ctx, cancel := context.WithCancelCause(fixture.Within(t))
	cancel(jobs.ErrDrain)
	s := *a.Streamer
	s.Queue = faultyLogs{&troubledQueue{Queue: a.conn.StreamJobs()}, jobs.ErrDrain}
	if _, err := a.conn.Swarms.Swarm(fixture.Within(t), "ends-drain"); err == nil {
		t.Fatal("it is there already")
	}
	if st, err := s.claimed(fixture.Within(t), a.job(t, "ends-drain", nil)); err != nil || st.ID == "" {
		t.Fatalf("record %+v, error %v; want a record", st, err)
	}
	if _, err := s.Handle(ctx, a.job(t, "ends-drain", nil), func(any) {}); err == nil {
		t.Error("it ends without an error")
	}
	if _, err := a.conn.Swarms.Swarm(fixture.Within(t), "ends-drain"); err != nil {
		t.Errorf("its swarm is gone when the agent drains: %v", err)
	}
}

// claimed claims the swarm of a job, as an earlier attempt does.
func (s *Streamer) claimed(ctx context.Context, job jobs.Job) (swarms.Swarm, error) {
	st := newStream(s, job.ID, nil)
	st.series = make([]source.Series, 1)
	if err := json.Unmarshal(job.Spec, &st.spec); err != nil {
		return swarms.Swarm{}, err
	}
	return st.claim(ctx)
}

// faultyLogs is a queue whose logs cannot be made.
type faultyLogs struct {
	Queue
	err error
}

func (q faultyLogs) Log(swarm string, shard int, d swarms.Direction) swarms.Log {
	return faultyLog{q.Queue.Log(swarm, shard, d), q.err}
}

// faultyLog is a log that cannot be made.
type faultyLog struct {
	swarms.Log
	err error
}

func (l faultyLog) Create(context.Context, ...swarms.Consistency) error { return l.err }

// TestManySinks: a job has at most eight sinks.
func TestManySinks(t *testing.T) {
	s := newStream(&Streamer{}, "many", nil)
	spec := StreamSpec{Candidates: []string{"a", "b"}, Sinks: make([]sink.Spec, maxSinks+1)}
	if _, err := s.openSinks("many", spec); err == nil {
		t.Errorf("a job has %d sinks", maxSinks+1)
	}
}

// TestNew: a Streamer that lacks what it needs is refused where it is made, not at its first job.
func TestNew(t *testing.T) {
	a := newAttempts(t)
	for name, change := range map[string]func(*Options){
		"Queue":  func(o *Options) { o.Queue = nil },
		"Files":  func(o *Options) { o.Files = nil },
		"Logger": func(o *Options) { o.Logger = nil },
		"Stall":  func(o *Options) { o.Stall = -1 },
	} {
		o := a.Options
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "option "+name) {
			t.Errorf("%s: got error %v, want one that names the option", name, err)
		}
	}
	if s, err := New(a.Options); err != nil || s.Stall != defaultStall {
		t.Errorf("New: %v, %v", s, err)
	}
}
