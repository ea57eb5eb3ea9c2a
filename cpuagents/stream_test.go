package cpuagents_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/cuda/host"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
)

var quiet = slog.New(slog.DiscardHandler)

// cluster is a queue with a GPU agent on the host device, and a streamer.
type cluster struct {
	srv      *server.Server
	conn     *natsq.Conn
	streamer *cpuagents.Streamer
	dir      string // the root "dir" of jobs
	spec     json.RawMessage
	ask      func(swarm string) // asks a stream's swarm before each step of it; may be nil
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	srv, err := server.Start(t.Context(), server.Options{Dir: t.TempDir(), Port: server.InProcess})
	if err != nil {
		t.Fatalf("server.Start: %v, want no error", err)
	}
	t.Cleanup(srv.Close)
	connect := func() *natsq.Conn {
		c, err := natsq.Connect(t.Context(), natsconn.Options{InProcess: srv, Name: "test"})
		if err != nil {
			t.Fatalf("natsq.Connect: %v, want no error", err)
		}
		t.Cleanup(c.Close)
		return c
	}
	dev, err := host.Open(host.Options{Logger: quiet, Requested: "host", Reason: "a test"})
	if err != nil {
		t.Fatalf("host.Open: %v, want no error", err)
	}
	t.Cleanup(func() { _ = dev.Close() })
	agent, err := gpuagents.Start(gpuagents.Options{Name: "gpu", Device: dev, Queue: connect().Swarms, Logger: quiet})
	if err != nil {
		t.Fatalf("gpuagents.Start: %v, want no error", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := agent.Drain(ctx); err != nil {
			t.Errorf("agent.Drain: %v, want no error", err)
		}
	})
	c := &cluster{srv: srv, conn: connect(), dir: t.TempDir()}
	files, err := files.New(files.Options{
		Roots: map[files.Root]string{{Name: "dir"}: c.dir}, Objects: c.conn.Objects,
		Scratch: t.TempDir(),
	})
	if err != nil {
		t.Fatalf("files.New: %v, want no error", err)
	}
	t.Cleanup(func() { _ = files.Close() })
	guard, err := access.NewGuard([]string{"127.0.0.0/8"})
	if err != nil {
		t.Fatalf("egress.New: %v, want no error", err)
	}
	c.streamer, err = cpuagents.New(cpuagents.Options{
		Queue: c.conn.StreamJobs(), Files: files, Logger: quiet,
		Egress: guard, Secrets: &access.Store{},
	})
	if err != nil {
		t.Fatalf("cpuagents.New: %v, want no error", err)
	}
	parsed, err := swarm.Parse("swarm.yaml", []byte("name: test\nagents_per_group: 16\n"))
	if err != nil {
		t.Fatalf("swarm.Parse: %v, want no error", err)
	}
	if c.spec, err = json.Marshal(parsed); err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	return c
}

// job makes a stream job over sources. Its output is ID.ndjson.
func (c *cluster) job(t *testing.T, id string, sources []source.Series, change func(*cpuagents.StreamSpec)) jobs.Job {
	t.Helper()
	manifest, err := json.Marshal(sources)
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	if err := os.WriteFile(filepath.Join(c.dir, id+".manifest"), manifest, 0o644); err != nil {
		t.Fatalf("os.WriteFile: %v, want no error", err)
	}
	spec := cpuagents.StreamSpec{
		Name: "test", Spec: c.spec, Candidates: []string{"normal", "elevated", "anomalous"},
		Columns:  rows.ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}},
		Manifest: "file:dir/" + id + ".manifest", Output: "file:dir/" + id + ".ndjson",
		Rejects: "file:dir/" + id + ".rejects", Summary: "file:dir/" + id + ".summary",
	}
	if change != nil {
		change(&spec)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	return jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: cpuagents.KindStream, Spec: data}
}

// read returns a file that a job wrote.
func (c *cluster) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil {
		t.Fatalf("os.ReadFile: %v, want no error", err)
	}
	return string(data)
}

// rowsOf writes rows from to to of an endless source, every 97th of them a spike.
func rowsOf(w io.Writer, from, to int) {
	for i := from; i < to; i++ {
		v := i % 7
		if i%97 == 96 {
			v = 500
		}
		fmt.Fprintf(w, "%d,%d\n", 1700000000+i, v)
	}
}

// pages serves rows in pages of 300 by a cursor, up to 3000.
func pages(w http.ResponseWriter, r *http.Request) {
	n, _ := strconv.Atoi(r.URL.Query().Get("from"))
	if n+300 < 3000 {
		w.Header().Set("Next", strconv.Itoa(n+300))
	}
	_, _ = io.WriteString(w, "timestamp,value\n")
	rowsOf(w, n, n+300)
}

// receiver is what a webhook is sent to.
type receiver struct {
	mu       sync.Mutex
	bodies   map[string]string // by id
	order    []string          // of ids, the first time
	bad      []string
	fail     int // answers 503 to this number of requests
	messages int
	after    func(n int) // after message number n
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	body, err := io.ReadAll(q.Body)
	r.mu.Lock()
	defer r.mu.Unlock()
	id := q.Header.Get("webhook-id")
	if old, ok := r.bodies[id]; err != nil || id == "" || id != q.Header.Get("Idempotency-Key") || ok &&
		old != string(body) {
		r.bad = append(r.bad, fmt.Sprintf("message %q: %v", id, err))
	}
	if want := sink.Sign("hunter2", id, q.Header.Get("webhook-timestamp"),
		body); q.Header.Get("webhook-signature") != want {
		r.bad = append(r.bad, "signature of "+id)
	}
	if r.fail > 0 {
		r.fail--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	if _, ok := r.bodies[id]; !ok {
		r.order = append(r.order, id)
	}
	r.bodies[id] = string(body)
	r.messages++
	if r.after != nil {
		r.after(r.messages)
	}
}

// text is everything that was received, in order.
func (r *receiver) text(t *testing.T) string {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, b := range r.bad {
		t.Errorf("a message that the receiver refuses: %s", b)
	}
	var b strings.Builder
	for _, id := range r.order {
		b.WriteString(r.bodies[id])
	}
	return b.String()
}

// TestPolledStream: a stream of a polled source continues where it was stopped.
func TestPolledStream(t *testing.T) {
	src := httptest.NewServer(http.HandlerFunc(pages))
	defer src.Close()
	goesOn(t, newCluster(t), source.Series{
		URI:  src.URL + "/x.csv",
		HTTP: &source.HTTPSpec{CursorParam: "from", CursorFrom: "header:Next", Rate: 1000, Backoff: 0.001},
	})
}

// TestWatchedStream: a stream of a watched folder continues where it was stopped.
func TestWatchedStream(t *testing.T) {
	c := newCluster(t)
	if err := os.Mkdir(filepath.Join(c.dir, "spool"), 0o755); err != nil {
		t.Fatalf("os.Mkdir: %v, want no error", err)
	}
	for i := range 10 {
		f, err := os.Create(filepath.Join(c.dir, "spool", fmt.Sprintf("%d.csv", 9-i)))
		if err != nil {
			t.Fatalf("os.Create: %v, want no error", err)
		}
		_, _ = io.WriteString(f, "timestamp,value\n")
		rowsOf(f, 300*i, 300*i+300)
		if err := errors.Join(f.Close(), os.Chtimes(f.Name(), time.Time{}, time.Unix(int64(i), 0))); err != nil {
			t.Fatalf("joined errors: %v, want no error", err)
		}
	}
	goesOn(t, c, source.Series{URI: "watch:dir/spool", Watch: &source.WatchSpec{Every: 0.1, Polls: 2}})
}

// jetStream returns a client of the server.
func (c *cluster) jetStream(t *testing.T) jetstream.JetStream {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(c.srv))
	if err != nil {
		t.Fatalf("nats.Connect: %v, want no error", err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatalf("jetstream.New: %v, want no error", err)
	}
	return js
}

// TestSubjectStream: a stream of messages continues where it was stopped, and leaves no consumer
// behind.
func TestSubjectStream(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	js := c.jetStream(t)
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "readings", Subjects: []string{"plant.>"}})
	if err != nil {
		t.Fatalf("js.CreateStream: %v, want no error", err)
	}
	for i := range 3000 {
		v := i % 7
		if i%97 == 96 {
			v = 500
		}
		if _, err := js.PublishAsync(fmt.Sprintf("plant.%d", i%5),
			fmt.Appendf(nil, `{"timestamp":%d,"value":%d}`, 1700000000+i, v)); err != nil {
			t.Fatalf("js.PublishAsync: %v, want no error", err)
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		t.Fatal("nothing was stored")
	}
	goesOn(t, c, source.Series{
		URI:  "nats:readings/plant.*",
		NATS: &source.SubjectSpec{Messages: 3000, BatchMessages: 300, BatchSeconds: 60},
	})
	info, err := stream.Info(ctx)
	if err != nil || info.State.Consumers != 0 || info.State.Msgs != 3000 {
		t.Errorf("the stream is %+v, %v, want 3000 messages and no consumer", info, err)
	}
}

// goesOn checks that a stream of 3000 rows in ten documents that is stopped in its middle, more
// than once, ends with the bytes of one that is not, and its webhook has got every decision of the
// output.
func goesOn(t *testing.T, c *cluster, src source.Series) {
	t.Helper()
	t.Setenv(access.Prefix+"HOOK", "hunter2")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	src.Name = "s"
	series := []source.Series{src}
	run := func(id string, r *receiver) (ctx2 context.Context, stop context.CancelCauseFunc, job jobs.Job) {
		hook := httptest.NewServer(r)
		t.Cleanup(hook.Close)
		job = c.job(t, id, series, func(s *cpuagents.StreamSpec) {
			s.Webhook = &sink.WebhookSpec{URL: hook.URL, Secret: "env:HOOK", All: true, Rate: 1000, Backoff: 0.001}
		})
		ctx2, stop = context.WithCancelCause(ctx)
		return ctx2, stop, job
	}
	whole := &receiver{bodies: map[string]string{}, fail: 3}
	ctx2, stop, job := run("whole", whole)
	defer stop(nil)
	out, err := c.streamer.Handle(ctx2, job, func(any) {})
	if err != nil {
		t.Fatalf("streamer.Handle: %v, want no error", err)
	}
	if r := out.(*cpuagents.StreamResult); r.Decisions != 3000 || r.Anomalies == 0 {
		t.Fatalf("the result is %+v, want 3000 decisions with anomalies", r)
	}
	var summary []cpuagents.SeriesSummary
	if err := json.Unmarshal([]byte(c.read(t, "whole.summary")), &summary); err != nil || len(summary) != 1 ||
		summary[0].Name != "s" || summary[0].Observations != 3000 || summary[0].Decisions != 3000 {
		t.Errorf("the summary is %+v: %v", summary, err)
	}
	want := c.read(t, "whole.ndjson")
	if got := whole.text(t); got != want || len(whole.order) < 10 {
		t.Fatalf("the webhook got %d bytes in %d messages, the output has %d", len(got), len(whole.order), len(want))
	}
	broken := &receiver{bodies: map[string]string{}}
	var end context.CancelCauseFunc
	broken.after = func(n int) {
		if c.ask != nil {
			c.ask("broken")
		}
		if n%4 == 3 {
			end(jobs.ErrDrain)
		}
	}
	attempts := 0
	for {
		attempts++
		ctx2, stop := context.WithCancelCause(ctx)
		broken.mu.Lock()
		end = stop
		broken.mu.Unlock()
		if attempts == 1 {
			var first context.CancelCauseFunc
			_, first, job = run("broken", broken)
			first(nil)
		}
		_, err := c.streamer.Handle(ctx2, job, func(any) {})
		stop(nil)
		if err == nil {
			break
		}
		// ErrFenced: an append that was cancelled may be stored, and then the next append fails.
		if !errors.Is(err, jobs.ErrDrain) && !errors.Is(err, jobs.ErrFenced) {
			t.Fatalf("streamer.Handle: %v, want %v", err, jobs.ErrDrain)
		}
	}
	if got := c.read(t, "broken.ndjson"); got != want || attempts < 3 {
		t.Errorf("%d attempts, and other bytes: %d of %d", attempts, len(got), len(want))
	}
	if got := broken.text(t); got != want {
		t.Errorf("the webhook got %d bytes, the output has %d", len(got), len(want))
	}
	if ids := strings.ReplaceAll(strings.Join(broken.order, " "), "broken-", "whole-"); ids != strings.Join(whole.order,
		" ") {
		t.Errorf("the webhook got messages %s, want %q", ids, whole.order)
	}
	for _, id := range []string{"whole", "broken"} { // nothing is left on the queue
		if _, err := c.conn.Swarms.Swarm(ctx, id); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("swarm %s: %v", id, err)
		}
	}
	if left, err := c.conn.Swarms.Orphans(ctx); err != nil || len(left) > 0 {
		t.Errorf("%+v is left: %v", left, err)
	}
}

// TestSinkStream: a stream without an output, whose decisions go to a folder, a table and a
// subject, and that is stopped in its middle again and again, leaves in each what one leaves that
// is not.
func TestSinkStream(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	js := c.jetStream(t)
	stream, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: "out", Subjects: []string{"alarms.*"}})
	if err != nil {
		t.Fatalf("js.CreateStream: %v, want no error", err)
	}
	var mu sync.Mutex
	var stop context.CancelCauseFunc // nil: nothing is stopped
	asked := 0
	src := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if asked++; stop != nil && asked%3 == 0 {
			stop(jobs.ErrDrain)
		}
		mu.Unlock()
		pages(w, r)
	}))
	defer src.Close()
	series := []source.Series{{
		Name: "s", URI: src.URL + "/x.csv",
		HTTP: &source.HTTPSpec{CursorParam: "from", CursorFrom: "header:Next", Rate: 1000, Backoff: 0.001},
	}}
	job := func(id string) jobs.Job {
		return c.job(t, id, series, func(s *cpuagents.StreamSpec) {
			s.Output = ""
			s.Sinks = []sink.Spec{
				{URI: "file:dir/" + id + "/parts", Format: "csv", PartRows: 500},
				{URI: "sqlite:dir/" + id + ".db?table=decisions", Backoff: 0.001, Tries: 20},
				{URI: "nats:out/alarms." + id, Anomalies: true},
			}
		})
	}
	out, err := c.streamer.Handle(ctx, job("whole"), func(any) {})
	if err != nil {
		t.Fatalf("streamer.Handle: %v, want no error", err)
	}
	anomalies := out.(*cpuagents.StreamResult).Anomalies
	attempts := 0
	for {
		attempts++
		ctx2, end := context.WithCancelCause(ctx)
		mu.Lock()
		stop = end
		mu.Unlock()
		_, err := c.streamer.Handle(ctx2, job("broken"), func(any) {})
		end(nil)
		if err == nil {
			break
		}
		// ErrFenced: an append that was cancelled may be stored, and then the next append fails.
		if !errors.Is(err, jobs.ErrDrain) && !errors.Is(err, jobs.ErrFenced) {
			t.Fatalf("streamer.Handle: %v, want %v", err, jobs.ErrDrain)
		}
	}
	texts := map[string][]string{}
	for _, id := range []string{"whole", "broken"} {
		parts, err := filepath.Glob(filepath.Join(c.dir, id, "parts", "*"))
		if err != nil || len(parts) < 5 {
			t.Fatalf("parts of %s: %v, %v, want 5 or more", id, parts, err)
		}
		for _, p := range parts {
			texts[id] = append(texts[id], filepath.Base(p)+"\n"+c.read(t, filepath.Join(id, "parts", filepath.Base(p))))
		}
		db, err := sql.Open("sqlite", filepath.Join(c.dir, id+".db"))
		if err != nil {
			t.Fatalf("sql.Open: %v, want no error", err)
		}
		var n, distinct, odd uint64
		err = db.QueryRowContext(ctx,
			`SELECT count(*), count(DISTINCT "row"), count(*) FILTER (WHERE decision = 'anomalous') FROM `+
				`decisions`).Scan(&n, &distinct, &odd)
		if cerr := db.Close(); err != nil || cerr != nil || n != 3000 || distinct != 3000 || odd != anomalies ||
			odd == 0 {
			t.Errorf("%s: %d rows, %d of them different, %d anomalies, want %d: %v", id, n, distinct, odd, anomalies,
				err)
		}
	}
	if strings.Join(texts["whole"], "") != strings.Join(texts["broken"], "") ||
		strings.Count(strings.Join(texts["whole"], ""), "\n") != 3000+2*len(texts["whole"]) {
		t.Errorf("%d parts and %d are not the same", len(texts["whole"]), len(texts["broken"]))
	}
	info, err := stream.Info(ctx)
	if err != nil {
		t.Fatalf("stream.Info: %v, want no error", err)
	}
	lines := map[string]uint64{}
	for seq := uint64(1); seq <= info.State.LastSeq; seq++ {
		m, err := stream.GetMsg(ctx, seq)
		if err != nil {
			t.Fatalf("stream.GetMsg: %v, want no error", err)
		}
		lines[m.Subject] += uint64(strings.Count(string(m.Data), "\n"))
	}
	if lines["alarms.whole"] != anomalies || lines["alarms.broken"] != anomalies {
		t.Errorf("%v, want %d each", lines, anomalies)
	}
	if attempts < 2 {
		t.Error("it was never stopped")
	}
}

// TestStreamFinishes: asked to finish, a stream that waits for its next poll ends with what it has.
func TestStreamFinishes(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	src := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "timestamp,value\n")
		rowsOf(w, 0, 100)
	}))
	defer src.Close()
	job := c.job(t, "finish", []source.Series{{
		Name: "s", URI: src.URL,
		HTTP: &source.HTTPSpec{Polls: 2, Every: 86400},
	}}, nil)
	ctx2, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out, err := c.streamer.Handle(ctx2, job, func(v any) {
		if v.(cpuagents.StreamProgress).Decisions == 100 {
			stop(jobs.ErrFinish)
		}
	})
	if err != nil {
		t.Fatalf("streamer.Handle: %v, want no error", err)
	}
	if r := out.(*cpuagents.StreamResult); !r.Interrupted || r.Decisions != 100 {
		t.Errorf("the result is %+v, want an interruption after 100 decisions", r)
	}
}

// TestStreamRefuses: what a job asks for and its agent does not allow is an error before anything
// is read.
func TestStreamRefuses(t *testing.T) {
	c := newCluster(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	file := []source.Series{{Name: "s", URI: "file:dir/s.csv"}}
	if err := os.WriteFile(filepath.Join(c.dir, "s.csv"), []byte("timestamp,value\n1,1\n"), 0o644); err != nil {
		t.Fatalf("os.WriteFile: %v, want no error", err)
	}
	var many []source.Series
	for i := range 65 {
		many = append(many, source.Series{Name: strconv.Itoa(i), URI: "http://127.0.0.1/"})
	}
	for name, c2 := range map[string]struct {
		series []source.Series
		change func(*cpuagents.StreamSpec)
		want   string
	}{
		"metadata": {[]source.Series{{Name: "s", URI: "http://169.254.169.254/latest/"}}, nil, "--egress"},
		"format":   {[]source.Series{{Name: "s", URI: "http://127.0.0.1/", Format: "xls"}}, nil, `format "xls"`},
		"many":     {many, nil, "more than 64 sources"},
		"webhook": {
			file, func(s *cpuagents.StreamSpec) { s.Webhook = &sink.WebhookSpec{URL: "http://10.0.0.1/"} },
			"--egress",
		},
		"secret": {file, func(s *cpuagents.StreamSpec) {
			s.Webhook = &sink.WebhookSpec{URL: "http://127.0.0.1/", Secret: "env:NONE"}
		}, "no such secret"},
		"sink":   {file, func(s *cpuagents.StreamSpec) { s.Sinks = []sink.Spec{{URI: "s3://bucket/x"}} }, "--egress"},
		"output": {file, func(s *cpuagents.StreamSpec) { s.OutputFormat = "xls" }, `format "xls"`},
	} {
		_, err := c.streamer.Handle(ctx, c.job(t, "refused", c2.series, c2.change), func(any) {})
		var e *jobs.Error
		if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), c2.want) {
			t.Errorf("%s: streamer.Handle: %v, want code %v and %q in its text", name, err, jobs.CodeInvalid, c2.want)
		}
	}
}
