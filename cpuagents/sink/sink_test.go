package sink

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/inputtest"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/servertest"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// place is where a kind of sink writes in a test.
type place struct {
	spec func(id string) Spec
	read func(id string) string // everything that is there
	wait func()                 // between two attempts; nil for nothing
	// remember has the place drop whatever comes twice from now on, for minutes; nil where it always
	// does so.
	remember func()
}

// forgetful is a log that stores n entries and fails then: what a process does that ends behind a
// write and before its note of it.
type forgetful struct {
	swarms.Log
	n int
}

var errForgot = errors.New("the process ended")

func (f *forgetful) Append(ctx context.Context, after uint64, entries ...swarms.Entry) error {
	if f.n -= len(entries); f.n < 0 {
		return errForgot
	}
	return f.Log.Append(ctx, after, entries...)
}

// sinkSuite is what every sink must do: keep each decision once, whatever ends an attempt, and
// whoever continues.
func sinkSuite(t *testing.T, q *natsq.Conn, s Resources, p place) {
	t.Helper()
	all := fixture.Batches()
	attempt := func(id string, forgets int) (Sink, error) {
		t.Helper()
		tp, err := s.New(id, 0, p.spec(id), rows.Layout{
			Series: fixture.Series, Candidates: fixture.Candidates,
			Features: []string{"value"},
		})
		if err != nil {
			t.Fatalf("s.New: %v, want no error", err)
		}
		log := q.Swarms.Log(id, 1, swarms.Out)
		if forgets >= 0 {
			log = &forgetful{log, forgets}
		}
		if err := tp.Open(fixture.Within(t), log); err != nil {
			t.Fatalf("tp.Open: %v, want no error", err)
		}
		return tp, nil
	}
	send := func(tp Sink, from, to int) error {
		for i := from; i < to; i++ {
			if err := tp.Send(fixture.Within(t), uint64(i+1), all[i]); err != nil {
				return err
			}
		}
		if to == len(all) {
			return tp.End(fixture.Within(t))
		}
		return nil
	}
	whole, _ := attempt("whole", -1)
	if err := send(whole, 0, len(all)); err != nil {
		t.Fatalf("send: %v, want no error", err)
	}
	whole.Close()
	want := p.read("whole")
	if want == "" {
		t.Fatal("nothing was kept")
	}
	for stop := 0; stop <= len(all); stop++ {
		for forgets := -1; forgets < stop; forgets++ {
			id := fmt.Sprintf("s%d_%d", stop, forgets+1)
			first, _ := attempt(id, forgets)
			if err := send(first, 0, stop); err != nil && !errors.Is(err, errForgot) {
				t.Fatalf("%s, first attempt: %v, want no error or the lost answer", id, err)
			}
			first.Close()
			if p.wait != nil && forgets >= 0 {
				p.wait()
			}
			second, _ := attempt(id, -1)
			if err := send(second, 0, len(all)); err != nil {
				t.Fatalf("%s, second attempt: %v, want no error", id, err)
			}
			second.Close()
			if got := p.read(id); got != want {
				t.Fatalf("%s: difference (-want +got):\n%s", id, cmp.Diff(want, got))
			}
		}
	}
	// An attempt that does not know that it is over.
	if p.remember != nil {
		p.remember()
	}
	first, _ := attempt("old", -1)
	if err := send(first, 0, 2); err != nil {
		t.Fatalf("send: %v, want no error", err)
	}
	second, _ := attempt("old", -1)
	if err := send(second, 0, len(all)); err != nil {
		t.Fatalf("send: %v, want no error", err)
	}
	if err := send(first, 2, len(all)); err != nil && !errors.Is(err, jobs.ErrFenced) {
		t.Fatalf("the earlier attempt goes on: %v, want no error or %v", err, jobs.ErrFenced)
	}
	first.Close()
	second.Close()
	if got := p.read("old"); got != want {
		t.Errorf("two attempts: %s", cmp.Diff(want, got))
	}
}

// resources is a streamer with a root "db" and a queue.
func resources(t *testing.T) (s Resources, q *natsq.Conn, js jetstream.JetStream, dir string) {
	t.Helper()
	srv := jobstest.Start(t, server.Options{Port: server.InProcess})
	q = jobstest.Open(t, srv, natsq.Connect)
	nc, err := nats.Connect("", nats.InProcessServer(srv))
	if err != nil {
		t.Fatalf("nats.Connect: %v, want no error", err)
	}
	t.Cleanup(nc.Close)
	if js, err = jetstream.New(nc); err != nil {
		t.Fatalf("jetstream.New: %v, want no error", err)
	}
	files, dir := inputtest.Database(t)
	return Resources{
		Queue: q.StreamJobs(), Files: files, Egress: fixture.Loopback(t),
		AllowStream: func(string) error { return nil },
	}, q, js, filepath.Join(dir, "root")
}

// folderText is every file below a folder, by name.
func folderText(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatalf("os.ReadDir: %v, want no error", err)
	}
	var b strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatalf("os.ReadFile: %v, want no error", err)
		}
		fmt.Fprintf(&b, "%s\n%s\n", e.Name(), data)
	}
	return b.String()
}

// TestFolderSink: parts of a folder, the same bytes under the same names.
func TestFolderSink(t *testing.T) {
	t.Parallel()
	s, q, _, dir := resources(t)
	sinkSuite(t, q, s, place{
		spec: func(id string) Spec {
			return Spec{URI: "file:db/out/" + id + "/x/", Format: "csv.gz", PartRows: 50}
		},
		read: func(id string) string { return folderText(t, filepath.Join(dir, "out", id, "x")) },
	})
	for _, name := range []string{"part-000000000001.csv.gz", "part-000000000003.csv.gz", "part-000000000005.csv.gz"} {
		if text := folderText(t, filepath.Join(dir, "out", "whole", "x")); !strings.Contains(text, name) {
			t.Errorf("there is no %s", name)
		}
	}
}

// TestObjectSink: objects of a bucket, put again where the store was busy.
func TestObjectSink(t *testing.T) {
	s, q, _, _ := resources(t)
	st := &servertest.S3{Busy: 3}
	t.Setenv(access.Prefix+"ID", "AKID")
	t.Setenv(access.Prefix+"KEY", "hunter2")
	t.Setenv(access.Prefix+"TOKEN", "TOKEN")
	srv := httptest.NewServer(st)
	t.Cleanup(srv.Close)
	sinkSuite(t, q, s, place{
		spec: func(id string) Spec {
			return Spec{
				URI: "s3://bucket/out/" + id + "/", Format: "parquet", PartRows: 50, Backoff: 0.001,
				Object: &remote.StoreSpec{
					Endpoint: srv.URL, Region: "eu-west-1", AccessKey: "env:ID",
					SecretKey: "env:KEY", SessionToken: "env:TOKEN",
				},
			}
		},
		read: func(id string) string {
			st.Mu.Lock()
			defer st.Mu.Unlock()
			var b strings.Builder
			for _, key := range slices.Sorted(maps.Keys(st.Objects)) {
				if name, mine := strings.CutPrefix(key, "out/"+id+"/"); mine {
					fmt.Fprintf(&b, "%s\n%s\n", name, st.Objects[key])
				}
			}
			return b.String()
		},
	})
	for _, b := range st.Bad {
		t.Errorf("a request that the store refuses: %s", b)
	}
	for _, typ := range st.Types {
		if typ != "application/vnd.apache.parquet" {
			t.Fatalf("an object has the type %q, want Parquet", typ)
		}
	}
}

// TestSubjectSink: messages of a stream, each once also when the stream has forgotten their ids.
func TestSubjectSink(t *testing.T) {
	t.Parallel()
	s, q, js, _ := resources(t)
	config := jetstream.StreamConfig{
		Name: "out", Subjects: []string{"alarms.>"}, Duplicates: 100 * time.Millisecond, // so that it forgets soon
	}
	stream, err := js.CreateStream(fixture.Within(t), config)
	if err != nil {
		t.Fatalf("js.CreateStream: %v, want no error", err)
	}
	var stored []*jetstream.RawStreamMsg // of the sequence numbers from 1 on
	read := func(id string) string {
		info, err := stream.Info(fixture.Within(t))
		if err != nil {
			t.Fatalf("stream.Info: %v, want no error", err)
		}
		for seq := uint64(len(stored)) + 1; seq <= info.State.LastSeq; seq++ {
			m, err := stream.GetMsg(fixture.Within(t), seq)
			if err != nil {
				t.Fatalf("stream.GetMsg: %v, want no error", err)
			}
			stored = append(stored, m)
		}
		var b strings.Builder
		for _, m := range stored {
			if m.Subject == "alarms."+id {
				if len(m.Data) > subjectPiece || m.Header.Get("Content-Type") != "application/x-ndjson" {
					t.Fatalf("a message of %d bytes with the headers %v, want at most %d bytes of NDJSON",
						len(m.Data), m.Header, subjectPiece)
				}
				_, number, _ := strings.Cut(m.Header.Get("Nats-Msg-Id"), "/")
				fmt.Fprintf(&b, "%s\n%s", number, m.Data)
			}
		}
		return b.String()
	}
	probes := 0
	forget := func() { // until the stream knows none of the ids before
		probes++
		for ctx, n := fixture.Within(t), 0; ; n++ {
			ack, err := js.Publish(ctx, "alarms.probe", nil, jetstream.WithMsgID(fmt.Sprint("probe", probes)))
			if err != nil {
				t.Fatalf("js.Publish: %v, want no error", err)
			}
			if n > 0 && !ack.Duplicate {
				return
			}
		}
	}
	sinkSuite(t, q, s, place{
		spec: func(id string) Spec { return Spec{URI: "nats:out/alarms." + id} }, read: read,
		wait: forget,
		remember: func() {
			config.Duplicates = 2 * time.Minute // a stall of the machine is shorter
			if stream, err = js.UpdateStream(fixture.Within(t), config); err != nil {
				t.Fatalf("js.UpdateStream: %v, want no error", err)
			}
		},
	})
	// A batch that is longer than a message is several.
	long := []string{strings.Repeat("n", 1000), "b"}
	tp, err := s.New("long", 0, Spec{URI: "nats:out/alarms.long"},
		rows.Layout{Series: long, Candidates: fixture.Candidates, Features: []string{"value"}})
	if err != nil {
		t.Fatalf("s.New: %v, want no error", err)
	}
	if err := tp.Open(fixture.Within(t), q.Swarms.Log("long", 1, swarms.Out)); err != nil {
		t.Fatalf("tp.Open: %v, want no error", err)
	}
	for _, d := range fixture.Batches() {
		if err := tp.Send(fixture.Within(t), 1, d); err != nil {
			t.Fatalf("tp.Send: %v, want no error", err)
		}
	}
	tp.Close()
	if got := read("long"); !strings.Contains(got, "0/1/1\n") {
		t.Errorf("the sink has %.100q, want the line of row 1", got)
	}
	big := fixture.Decisions(0, 1000)
	tp, err = s.New("big", 0, Spec{URI: "nats:out/alarms.big", Anomalies: true},
		rows.Layout{Series: long, Candidates: fixture.Candidates, Features: []string{"value"}})
	if err != nil {
		t.Fatalf("s.New: %v, want no error", err)
	}
	defer tp.Close()
	if err := tp.Open(fixture.Within(t), q.Swarms.Log("big", 1, swarms.Out)); err != nil {
		t.Fatalf("tp.Open: %v, want no error", err)
	}
	for n := range uint64(3) {
		if err := tp.Send(fixture.Within(t), n+1, big); err != nil {
			t.Fatalf("tp.Send: %v, want no error", err)
		}
	}
	anomalies := 0
	for _, c := range big.Decision {
		if c == 1 {
			anomalies++
		}
	}
	if got := read("big"); strings.Count(got, `"series"`) != 3*anomalies || !strings.Contains(got, "0/3/1\n") ||
		strings.Contains(got, `"decision":"normal"`) {
		t.Errorf("%d of %d", strings.Count(got, `"series"`), 3*anomalies)
	}
}

// tableText is a table without the column of the job.
func tableText(t *testing.T, db *sql.DB, table string) string {
	t.Helper()
	rows, err := db.QueryContext(fixture.Within(t),
		`SELECT "series", "row", "timestamp", "value", "score", "decision", "round", "leader", "counts.odd, `+
			`""very""" FROM "`+table+`" ORDER BY "series", "round", "row"`)
	if err != nil {
		t.Fatalf("db.QueryContext: %v, want no error", err)
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		v := make([]any, 9)
		into := make([]any, 9)
		for i := range v {
			into[i] = &v[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatalf("rows.Scan: %v, want no error", err)
		}
		fmt.Fprintln(&b, v...)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("rows.Err: %v, want no error", err)
	}
	return b.String()
}

// tableSuite is tapSuite for tables of a database.
func tableSuite(t *testing.T, q *natsq.Conn, s Resources, db *sql.DB, spec Spec, schema string) {
	t.Helper()
	uri := spec.URI
	sinkSuite(t, q, s, place{
		spec: func(id string) Spec { spec.URI = uri + "?table=" + schema + "t_" + id; return spec },
		read: func(id string) string { return tableText(t, db, "t_"+id) },
	})
	if got := strings.Count(tableText(t, db, "t_whole"), "\n"); got != 1400 {
		t.Errorf("%d rows", got)
	}
	for name, change := range map[string]func(*Spec){
		"other columns": func(s *Spec) { s.URI = uri + "?table=other" },
		"injection":     func(s *Spec) { s.URI = uri + "?table=t;DROP" },
		"positions":     func(s *Spec) { s.URI = uri + "?table=" + positionTable },
		"two":           func(s *Spec) { s.URI = uri + "?table=a&x=b" },
		"none":          func(s *Spec) { s.URI = uri },
		"format":        func(s *Spec) { s.Format = "csv" },
		"parts":         func(s *Spec) { s.PartRows = 10 },
	} {
		bad := spec
		bad.URI = uri + "?table=t"
		change(&bad)
		tp, err := s.New("bad", 0, bad, rows.Layout{
			Series: fixture.Series, Candidates: fixture.Candidates,
			Features: []string{"value"},
		})
		if err == nil {
			if err = tp.Open(fixture.Within(t), nil); err == nil {
				err = tp.Send(fixture.Within(t), 1, fixture.Batches()[0])
			}
			tp.Close()
		}
		var e *jobs.Error
		if !errors.As(err, &e) || jobs.Retryable(err) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want a final error without the password", name, err)
		}
	}
}

// TestSQLiteSink: a table of a file below a root, which nobody else must have.
func TestSQLiteSink(t *testing.T) {
	if testing.Short() {
		t.Skip("SQLite, which is in Go, takes half a minute with the race detector; TestPostgresSink has the same sink")
	}
	t.Parallel()
	s, q, _, dir := resources(t)
	db, err := sql.Open("sqlite", filepath.Join(dir, "out.db"))
	if err != nil {
		t.Fatalf("sql.Open: %v, want no error", err)
	}
	defer db.Close()
	if _, err := db.ExecContext(fixture.Within(t), "CREATE TABLE other (x INTEGER)"); err != nil {
		t.Fatalf("db.ExecContext: %v, want no error", err)
	}
	tableSuite(t, q, s, db, Spec{URI: "sqlite:db/out.db", Backoff: 0.001, Tries: 20}, "")
	for _, uri := range []string{
		"sqlite:db/../outside.db?table=t", "sqlite:db/link.db?table=t",
		"sqlite:x/a.db?table=t", "sqlite:db/out.db?table=main.t", "sqlite:db/none/out.db?table=t",
	} {
		tp, err := s.New("bad", 0, Spec{URI: uri},
			rows.Layout{Series: fixture.Series, Candidates: fixture.Candidates, Features: []string{"value"}})
		if err == nil {
			tp.Close()
			t.Errorf("sink %s is accepted, want an error", uri)
		}
	}
}

// TestPostgresSink: a sink that writes to a table of a real server. A user who may only insert
// needs no more rights.
func TestPostgresSink(t *testing.T) {
	uri := servertest.StartPostgres(t)
	s, q, _, _ := resources(t)
	db := servertest.OpenPostgres(t, uri)
	defer db.Close()
	for _, do := range []string{
		"CREATE TABLE other (x integer)", "CREATE ROLE writer LOGIN PASSWORD 'hunter2'", "CREATE TABLE given (job " +
			"text, series text, row bigint, timestamp text, value float8, score real, decision text, round bigint, " +
			"leader bigint, \"counts.normal\" bigint, \"counts.odd, \"\"very\"\"\" bigint)",
	} {
		if _, err := db.ExecContext(fixture.Within(t), do); err != nil {
			t.Fatalf("statement %q: %v", do, err)
		}
	}
	spec := Spec{URI: uri, Password: "env:PG", TLS: "disable", Backoff: 0.001, Tries: 20}
	tableSuite(t, q, s, db, spec, "public.")
	if _, err := db.ExecContext(fixture.Within(t), "GRANT INSERT ON given TO writer; GRANT SELECT, INSERT, UPDATE "+
		"ON "+positionTable+" TO writer"); err != nil {
		t.Fatalf("db.ExecContext: %v, want no error", err)
	}
	spec.URI = strings.Replace(uri, "postgres@", "writer@", 1) + "?table=given"
	tp, err := s.New("given", 0, spec, rows.Layout{
		Series: fixture.Series, Candidates: fixture.Candidates,
		Features: []string{"value"},
	})
	if err != nil {
		t.Fatalf("s.New: %v, want no error", err)
	}
	defer tp.Close()
	if err := tp.Open(fixture.Within(t), nil); err != nil {
		t.Fatalf("tp.Open: %v, want no error", err)
	}
	for i, d := range fixture.Batches() {
		if err := tp.Send(fixture.Within(t), uint64(i+1), d); err != nil {
			t.Fatalf("tp.Send: %v, want no error", err)
		}
	}
	if tableText(t, db, "given") != tableText(t, db, "t_whole") {
		t.Error("other rows")
	}
	// it can be written at all
	if _, err := db.ExecContext(fixture.Within(t), "INSERT INTO t_whole DEFAULT VALUES"); err != nil {
		t.Errorf("db.ExecContext: %v, want no error", err)
	}
}

// TestSinkRefuses: what a job may not write to, and what is no sink.
func TestSinkRefuses(t *testing.T) {
	s, q, js, _ := resources(t)
	if _, err := js.CreateStream(fixture.Within(t),
		jetstream.StreamConfig{Name: "out", Subjects: []string{"alarms.>"}}); err != nil {
		t.Fatalf("js.CreateStream: %v, want no error", err)
	}
	for _, spec := range []Spec{
		{},
		{URI: "gs://bucket/x"},
		{URI: "ftp://h/x"},
		{URI: "nats:out"},
		{URI: "nats:out/a.*"},
		{URI: "nats:o.t/a"},
		{URI: "nats:EXO_JOBS_CPU/exo.job.cpu.a.b.c.d"},
		{URI: "nats:out/exo.job.cpu.a.b.c.d"},
		{URI: "nats:none/alarms.a"},
		{URI: "nats:out/other"},
		{URI: "file:x/a"},
		{URI: "file:db/../a"},
		{URI: "file:db/a", Format: "xls"},
		{URI: "file:db/a", Format: "parquet.gz"},
		{URI: "file:db/a", PartRows: -1},
		{URI: "file:db/a", PartRows: 2e6},
		{URI: "file:db/a", Object: &remote.StoreSpec{}},
		{URI: "file:db/link.db"},
		{URI: "s3://bucket/x"},
		{URI: "s3://b/x", Object: &remote.StoreSpec{Endpoint: "http://127.0.0.1:1"}},
		{URI: "s3://bucket/x", Object: &remote.StoreSpec{Endpoint: "http://10.0.0.1/"}},
		{URI: "nats:out/alarms.a", PartRows: 5},
		{URI: "file:db/a", Timeout: -1},
		{URI: "postgres://u:hunter2@h/db?table=t"},
		{URI: "postgres://u@h/db"},
		{URI: "postgres://u@10.0.0.1/db?table=t", Backoff: 0.001},
	} {
		tp, err := s.New("bad", 0, spec, rows.Layout{
			Series: fixture.Series, Candidates: fixture.Candidates,
			Features: []string{"value"},
		})
		if err == nil {
			if err = tp.Open(fixture.Within(t), q.Swarms.Log("bad", 1, swarms.Out)); err == nil {
				if err = tp.Send(fixture.Within(t), 1, fixture.Batches()[0]); err == nil {
					err = tp.End(fixture.Within(t))
				}
			}
			tp.Close()
		}
		var e *jobs.Error
		if !errors.As(err, &e) || jobs.Retryable(err) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v, want a final error without the password", spec.URI, err)
		}
	}
}
