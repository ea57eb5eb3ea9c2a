package source

import (
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/internal/inputtest"
	"github.com/exoswarm/exoswarm/cpuagents/servertest"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

const goodQuery = "SELECT id, at AS timestamp, value FROM t WHERE id > $1 ORDER BY id"

func quickSQL(query string) *SQLSpec {
	return &SQLSpec{
		Query: query, Cursor: "id", Start: 0.0, PageRows: 2, Every: 0.1, Backoff: 0.001, Tries: 2,
		Timeout: 20,
	}
}

// TestSQLite: every row is read once, page by page, and an attempt after another reads the same
// rows though the table changed.
func TestSQLite(t *testing.T) {
	files, dir := inputtest.Database(t, "CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT, value)",
		`INSERT INTO t VALUES (1,'2026-01-01',1.5),(2,'2026-01-02',2),(4,'2026-01-03',NULL),(5,'2026-01-04','4.25'),`+
			`(9,'2026-01-05','x')`)
	q, ctx := jobstest.Connected(t, natsq.Connect), fixture.Within(t)
	open := func() *documentReader {
		f, err := newSQLFetcher("sqlite:db/a.db", quickSQL(goodQuery), inputtest.OneFeature, files, nil, nil)
		if err != nil {
			t.Fatalf("newSQLFetcher: %v, want no error", err)
		}
		return remoteOf(ctx, t, q, "sqlite", f)
	}
	first := open()
	if got, err := told(first, 4); err != nil || strings.Join(got, " ") != "1:1.5 2:2 - 3!" {
		t.Fatalf("rows %q, %v, want those before the pause", got, err)
	}
	if err := first.Close(); err != nil {
		t.Fatalf("first.Close: %v, want no error", err)
	}
	db, err := sql.Open("sqlite", filepath.Join(dir, "root", "a.db"))
	if err != nil {
		t.Fatalf("sql.Open: %v, want no error", err)
	}
	if _, err := db.ExecContext(ctx, "UPDATE t SET value = 7"); err != nil {
		t.Fatalf("db.ExecContext: %v, want no error", err)
	}
	if err := db.Close(); err != nil {
		t.Fatalf("db.Close: %v, want no error", err)
	}
	second := open()
	defer second.Close()
	if got, err := told(second, 100); err != nil || strings.Join(got, " ") != "1:1.5 2:2 - 3! 4:4.25 - 5:7" {
		t.Fatalf("the next attempt reads %q, %v, want the same rows and the new ones", got, err)
	}
}

// TestSQLiteRefuses: a query reads what it is for, and nothing else of the machine.
func TestSQLiteRefuses(t *testing.T) {
	files, dir := inputtest.Database(t, "CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT, value)", "INSERT INTO t "+
		"VALUES (1,'2026-01-01',1)")
	for name, c := range map[string]struct{ uri, query string }{
		"outside": {"sqlite:db/../outside.db", goodQuery}, "link": {"sqlite:db/link.db", goodQuery},
		"no root": {"sqlite:x/a.db", goodQuery}, "missing": {"sqlite:db/no.db", goodQuery},
		"two":       {"sqlite:db/a.db", goodQuery + "; DROP TABLE t"},
		"attach":    {"sqlite:db/a.db", "ATTACH '" + dir + "/outside.db' AS o"},
		"no cursor": {"sqlite:db/a.db", "SELECT 1"},
		"pragma":    {"sqlite:db/a.db", "PRAGMA query_only = 0 /* $1 */"},
		"vacuum":    {"sqlite:db/a.db", "VACUUM INTO '" + dir + "/copy.db' -- $1"}, "empty": {"sqlite:db/a.db", ""},
	} {
		if f, err := newSQLFetcher(c.uri, quickSQL(c.query), inputtest.OneFeature, files, nil, nil); err == nil {
			_ = f.close()
			t.Errorf("%s: no error", name)
		}
	}
	for name, query := range map[string]string{
		"no table":  "SELECT id, at AS timestamp, value FROM u WHERE id > $1",
		"no column": "SELECT id, value FROM t WHERE id > $1",
		"big":       "SELECT id, hex(zeroblob(100000000)) AS timestamp, value FROM t WHERE id > $1",
		"not SQL":   "SELECT $1 FROM WHERE",
		"write":     "WITH x AS (SELECT $1) DELETE FROM t RETURNING id, at AS timestamp, value",
	} {
		f, err := newSQLFetcher("sqlite:db/a.db", quickSQL(query), inputtest.OneFeature, files, nil, nil)
		if err != nil {
			t.Fatalf("newSQLFetcher: %v, want no error", err)
		}
		doc := fixture.TempFile(t, nil)
		_, err = f.fetch(fixture.Within(t), position{}, "", doc)
		if !fixture.IsInput(err) || jobs.Retryable(err) {
			t.Errorf("%s: %v, want a final error of the input", name, err)
		}
		_ = doc.Close()
		_ = f.close()
	}
}

// TestPostgresRefuses: a database that the operator did not name is not reached, and no error shows
// a password.
func TestPostgresRefuses(t *testing.T) {
	t.Setenv(access.Prefix+"PG", "hunter2")
	t.Setenv("PGPASSWORD", "hunter2")
	spec := func() *SQLSpec {
		s := quickSQL(goodQuery)
		s.Password, s.TLS = "env:PG", "disable"
		return s
	}
	for _, uri := range []string{
		"postgres://h:5432/db", "postgres://u:hunter2@h/db", "postgres://u@h:5432/", "postgres:///db",
		"postgres://u@/db", "postgres://u@h/db?sslmode=disable", "postgres://u@h:0x/db",
	} {
		if f, err := newSQLFetcher(uri, spec(), inputtest.OneFeature, nil, fixture.Loopback(t), nil); err == nil ||
			strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: fetcher %v, %v, want an error without the password", uri, f, err)
		}
	}
	f, err := newSQLFetcher(
		"postgres://u@10.0.0.1:5432/db",
		spec(),
		inputtest.OneFeature,
		nil,
		fixture.Loopback(t),
		nil,
	)
	if err != nil {
		t.Fatalf("newSQLFetcher: %v, want no error", err)
	}
	defer f.close()
	doc := fixture.TempFile(t, nil)
	defer doc.Close()
	_, err = f.fetch(fixture.Within(t), position{}, "", doc)
	var e *jobs.Error
	if !errors.As(err, &e) || e.Code != jobs.CodeInvalid || !strings.Contains(err.Error(), "--egress") ||
		strings.Contains(err.Error(), "hunter2") {
		t.Errorf("fetch: %v, want code %s with --egress and no password", err, jobs.CodeInvalid)
	}
}

// TestPostgresSource: a table of a real server is read page by page, and a query that writes is
// refused.
func TestPostgresSource(t *testing.T) {
	uri := servertest.StartPostgres(t)
	db := servertest.OpenPostgres(t, uri)
	defer db.Close()
	for _, do := range []string{
		"CREATE TABLE given (round bigint, timestamp text, value float8)",
		"INSERT INTO given SELECT n, (1700000000 + n)::text, n::float8 / 2 FROM generate_series(1, 700) AS n",
	} {
		if _, err := db.ExecContext(fixture.Within(t), do); err != nil {
			t.Fatalf("statement %q: %v", do, err)
		}
	}
	source := quickSQL("SELECT round AS id, timestamp, value FROM given WHERE round > $1 ORDER BY round")
	source.Password, source.TLS, source.PageRows = "env:PG", "disable", 300
	f, err := newSQLFetcher(uri, source, inputtest.OneFeature, nil, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatalf("newSQLFetcher: %v, want no error", err)
	}
	r := remoteOf(fixture.Within(t), t, jobstest.Connected(t, natsq.Connect), "back", f)
	defer r.Close()
	got, err := told(r, 1000)
	if err != nil || len(got) != 702 || got[300] != "-" {
		t.Errorf("%d rows and pauses, %v, want 702 with a pause after the first 300", len(got), err)
	}
	for i := range 300 {
		if want := fmt.Sprintf("%d:%g", i+1, float64(i+1)/2); got[i] != want {
			t.Fatalf("row %d is %s, want %s", i, got[i], want)
		}
	}
	refused, err := newSQLFetcher(uri, func() *SQLSpec {
		s := quickSQL("WITH x AS (DELETE FROM given RETURNING *) SELECT round AS id, timestamp, value FROM x WHERE " +
			"round > $1")
		s.Password, s.TLS = "env:PG", "disable"
		return s
	}(), inputtest.OneFeature, nil, fixture.Loopback(t), nil)
	if err != nil {
		t.Fatalf("newSQLFetcher: %v, want no error", err)
	}
	defer refused.close()
	doc := fixture.TempFile(t, nil)
	defer doc.Close()
	if _, err := refused.fetch(fixture.Within(t), position{}, "", doc); !fixture.IsInput(err) ||
		!strings.Contains(err.Error(), "25006") {
		t.Errorf("a source that writes: %v", err)
	}
}
