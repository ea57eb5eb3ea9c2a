package sink

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"net/url"
	"regexp"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// positionTable has the last batch of each sink that writes to the database. A batch and its
// position are written in one transaction, and the row of the position is locked meanwhile. So each
// decision is in the table once, however an attempt ends.
const positionTable = "exoswarm_positions"

const (
	// insertValues bounds the values of one INSERT: PostgreSQL takes 65,535.
	insertValues = 30_000
	// liteValues is the bound for SQLite, whose driver searches all values for each parameter: at
	// 500 values it takes a tenth of the time that it takes at 30,000.
	liteValues = 500
	// longestName is the bytes of a name that PostgreSQL keeps.
	longestName = 63
)

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

type tableSink struct {
	base
	rows.Layout
	key     string // of job and sink
	db      *sql.DB
	driver  remote.Database
	lite    bool
	table   string // quoted
	name    string
	columns []column
	sent    uint64
	ready   bool // the tables are there
}

type column struct{ name, typ string }

// newTable returns the sink of a table. It checks all names of columns against the rules of both
// databases before it opens one.
func newTable(b base, key string, l rows.Layout, s Resources) (_ *tableSink, err error) {
	t := &tableSink{base: b, Layout: l, key: key}
	uri, query, _ := strings.Cut(b.spec.URI, "?")
	values, err := url.ParseQuery(query)
	if t.name = values.Get("table"); err != nil || len(values) != 1 || len(values["table"]) != 1 ||
		!tableName.MatchString(t.name) ||
		strings.HasSuffix(t.name, positionTable) {
		return nil, b.bad("write ?table=TABLE behind it, TABLE or SCHEMA.TABLE of letters, digits and '_'")
	}
	t.table = strings.ReplaceAll(quoteName(t.name), ".", `"."`)
	t.columns = []column{
		{"job", "text"},
	}
	named := map[string]bool{} // as SQLite compares names
	add := func(what string, of, names []string, typ string) error {
		for i, name := range names {
			low := strings.ToLower(name)
			if len(name) > longestName || strings.ContainsRune(name, 0) || named[low] {
				return b.bad(
					"%s %s: a table cannot have a column %s: use a name of at most %d bytes that differs from the "+
						"others by more than the case of its letters",
					what, access.Quote(of[i]), access.Quote(name), longestName,
				)
			}
			named[low] = true
			t.columns = append(t.columns, column{name, typ})
		}
		return nil
	}
	if err := add("key", l.Keys, l.NameColumns(), "text"); err != nil {
		return nil, err
	}
	t.columns = append(t.columns, column{"row", "bigint"}, column{"timestamp", "text"})
	if err := add("feature", l.Features, l.FeatureColumns(), "double precision"); err != nil {
		return nil, err
	}
	t.columns = append(
		t.columns, column{"score", "real"}, column{"decision", "text"}, column{"round", "bigint"},
		column{"leader", "bigint"},
	)
	for _, c := range l.Candidates {
		n := rows.CountColumn(c)
		if len(n) > longestName || strings.ContainsRune(n, 0) {
			return nil, b.bad(
				"candidate %s: a column cannot be called %s: at most %d bytes", access.Quote(c), access.Quote(n),
				longestName,
			)
		}
		t.columns = append(t.columns, column{n, "bigint"})
	}
	if l.Drops {
		t.columns = append(t.columns, column{rows.DroppedColumn, "text"})
	}
	if l.Explain {
		for _, name := range l.BandColumns() {
			if len(name) > longestName {
				return nil, b.bad("feature %s: a column cannot be called %s: at most %d bytes",
					access.Quote(name[strings.IndexByte(name, '.')+1:]), access.Quote(name), longestName)
			}
			t.columns = append(t.columns, column{name, "double precision"})
		}
		t.columns = append(t.columns, column{rows.FaultColumn, "text"}, column{rows.DirectionColumn, "text"},
			column{rows.KindColumn, "text"}, column{rows.BeforeColumn, "bigint"})
	}
	scheme, _, _ := strings.Cut(uri, ":")
	if t.lite = scheme == "sqlite"; t.lite && strings.Contains(t.name, ".") {
		return nil, b.bad("a table of SQLite has no schema: leave it out")
	}
	if t.driver, err = remote.DatabaseDriver(scheme); err != nil {
		return nil, b.bad("%v", err)
	}
	if t.db, err = t.driver.Open(remote.DatabaseAddress{
		URI: uri, Write: true, Password: b.spec.Password, TLS: b.spec.TLS,
		Files: s.Files, Egress: s.Egress, Secrets: s.Secrets,
	}); err != nil {
		return nil, b.bad("%v", err)
	}
	t.db.SetMaxOpenConns(1)
	return t, nil
}

// Close implements Sink. It closes the only connection.
func (t *tableSink) Close() { _ = t.db.Close() }

// Open implements Sink. The position is in the database.
func (t *tableSink) Open(ctx context.Context, _ swarms.Log) error {
	return t.tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		t.sent, err = t.position(ctx, tx)
		return err
	})
}

// tx runs fn in a transaction, and repeats both after a failure that may pass. The answer to a
// commit may be lost, so fn must find out by the position whether it has committed before.
func (t *tableSink) tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return t.try(ctx, func(ctx context.Context) error {
		if !t.ready {
			if err := t.create(ctx); err != nil {
				return t.class(err)
			}
			t.ready = true
		}
		tx, err := t.db.BeginTx(ctx, nil)
		if err == nil {
			if err = fn(ctx, tx); err == nil {
				err = tx.Commit()
			}
			_ = tx.Rollback()
		}
		return t.class(err)
	})
}

// create makes the tables that are missing. An existing table is used as it is, also by a user
// without the right to make one.
func (t *tableSink) create(ctx context.Context) error {
	var defs []string
	for _, c := range t.columns {
		defs = append(defs, quoteName(c.name)+" "+c.typ)
	}
	for _, make := range [][2]string{
		{t.name, "CREATE TABLE IF NOT EXISTS " + t.table + " (" + strings.Join(defs, ", ") + ")"},
		{positionTable, "CREATE TABLE IF NOT EXISTS " + positionTable + " (sink text PRIMARY KEY, batch bigint NOT " +
			"NULL)"},
	} {
		look := "SELECT count(*) FROM sqlite_schema WHERE type IN ('table', 'view') AND lower(name) = lower(?)"
		name := make[0]
		if !t.lite {
			look = "SELECT count(to_regclass($1))"
			if name != positionTable {
				name = t.table
			}
		}
		there := 0
		if err := t.db.QueryRowContext(ctx, look, name).Scan(&there); err != nil {
			return err
		}
		if there == 0 {
			if _, err := t.db.ExecContext(ctx, make[1]); err != nil {
				return err
			}
		}
	}
	_, err := t.db.ExecContext(
		ctx, "INSERT INTO "+positionTable+" (sink, batch) VALUES ("+t.value(1)+", 0) ON CONFLICT (sink) DO NOTHING",
		t.key,
	)
	return err
}

// value returns the placeholder of value number i of a statement.
func (t *tableSink) value(i int) string {
	if t.lite {
		return "?"
	}
	return fmt.Sprint("$", i)
}

// position returns the last batch that is in the table. No other transaction changes it until this
// one ends: PostgreSQL locks the row, and SQLite has one writer at a time.
func (t *tableSink) position(ctx context.Context, tx *sql.Tx) (sent uint64, err error) {
	query := "SELECT batch FROM " + positionTable + " WHERE sink = " + t.value(1)
	if !t.lite {
		query += " FOR UPDATE"
	}
	return sent, tx.QueryRowContext(ctx, query, t.key).Scan(&sent)
}

// Send implements Sink. The decisions and the position are one transaction.
func (t *tableSink) Send(ctx context.Context, number uint64, d *batch.Decisions) error {
	if number <= t.sent {
		return nil
	}
	err := t.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		sent, err := t.position(ctx, tx)
		if err != nil || sent >= number { // a commit whose answer was lost, or another attempt
			return err
		}
		if err := t.insert(ctx, tx, d); err != nil {
			return err
		}
		_, err = tx.ExecContext(
			ctx, "UPDATE "+positionTable+" SET batch = "+t.value(1)+" WHERE sink = "+t.value(2), int64(number), t.key,
		)
		return err
	})
	if err == nil {
		t.sent = number
	}
	return err
}

// insert adds the wanted decisions of a batch, with as many rows per statement as the databases
// take. A dropped observation has nulls in place of a decision.
func (t *tableSink) insert(ctx context.Context, tx *sql.Tx, d *batch.Decisions) error {
	job, _, _ := strings.Cut(t.key, "/")
	var names []string
	for _, c := range t.columns {
		names = append(names, quoteName(c.name))
	}
	head := "INSERT INTO " + t.table + " (" + strings.Join(names, ", ") + ") VALUES "
	var tuples []string
	var values []any
	most := insertValues
	if t.lite {
		most = liteValues
	}
	flush := func() error {
		if len(tuples) == 0 {
			return nil
		}
		_, err := tx.ExecContext(ctx, head+strings.Join(tuples, ","), values...)
		tuples, values = tuples[:0], values[:0]
		return err
	}
	for i := range d.Len() {
		if !t.wanted(d, i) {
			continue
		}
		name := rows.NoDecision
		if c := d.Decision[i]; c != batch.NoDecision {
			name = t.Candidates[c]
		}
		from, why := len(values), rows.DropReason(d, i)
		values = append(values, job)
		for _, name := range t.Names(int(d.Group[i])) {
			values = append(values, storable(name))
		}
		values = append(values, int64(d.Row[i]), storable(d.Timestamp[i]))
		for f := range t.Features {
			v, ok := d.Feature(i, f)
			values = append(values, sql.NullFloat64{Float64: v, Valid: ok})
		}
		if why == "" {
			values = append(values, d.Score[i], storable(name), int64(d.Round[i]), int64(d.Leader[i]))
			for c := range t.Candidates {
				values = append(values, int64(d.Counts[i*d.Candidates+c]))
			}
		} else {
			values = append(values, make([]any, 4+len(t.Candidates))...) // nulls
		}
		if t.Drops {
			values = append(values, sql.NullString{String: why, Valid: why != ""})
		}
		if t.Explain {
			values = t.explained(values, d, i)
		}
		marks := make([]string, len(values)-from)
		for v := range marks {
			marks[v] = t.value(from + v + 1)
		}
		if tuples = append(tuples, "("+strings.Join(marks, ",")+")"); len(values)+len(t.columns) > most {
			if err := flush(); err != nil {
				return err
			}
		}
	}
	return flush()
}

// explained appends the explanation of row i to the values of a row. What is unknown is null.
func (t *tableSink) explained(values []any, d *batch.Decisions, i int) []any {
	for f := range t.Features {
		for _, v := range rows.Band(d, i, f) {
			values = append(values, sql.NullFloat64{Float64: v, Valid: !math.IsNaN(v)})
		}
	}
	why := d.Explained
	if why.Fault[i] < 0 {
		return append(values, nil, nil, nil, nil)
	}
	return append(values, t.FeatureColumns()[why.Fault[i]], batch.Sides[why.Side[i]], why.Kind[i].String(),
		int64(why.Before[i]))
}

func quoteName(n string) string { return `"` + strings.ReplaceAll(n, `"`, `""`) + `"` }

// storable returns a text as both databases accept it: in UTF-8, without NUL.
func storable(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// End implements Sink: nothing is held back.
func (t *tableSink) End(context.Context) error { return nil }

// class gives an error its class, and marks with retry.Permanent what no further try repairs.
func (t *tableSink) class(err error) error {
	if err == nil {
		return nil
	}
	var typed *jobs.Error
	if errors.As(err, &typed) {
		return retry.Permanent(err)
	}
	if access.Refused(err) {
		return retry.Permanent(t.bad("%v", err))
	}
	// Two that make a table at the same time try again.
	if answer, is := t.driver.Failure(err); is && !answer.Transient && !answer.Exists {
		return retry.Permanent(
			access.InputError("%s: %s: correct the table %s or the rights on it", t.where, answer.Text, t.name),
		)
	}
	return jobs.Errorf(jobs.CodeIO, "write to %s: %v", t.where, err)
}
