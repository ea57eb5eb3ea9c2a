package source

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// SQLSpec says how a source at sqlite:ROOT/PATH or postgres://USER@HOST:PORT/DATABASE is read.
type SQLSpec struct {
	// Query is one SELECT without a semicolon. Its columns have the names of the swarm's columns.
	// The column Cursor grows from row to row and never repeats, and $1 in the query is its last
	// value: SELECT id, at AS timestamp, value FROM t WHERE id > $1 ORDER BY id.
	Query  string `json:"query"`
	Cursor string `json:"cursor"`
	// Start is the first value of $1: a number or a text.
	Start any `json:"start"`
	// Password refers to a secret of the agent. TLS is verify-full (the default), require or
	// disable.
	Password string `json:"password,omitempty"`
	TLS      string `json:"tls,omitempty"`
	// PageRows is the most rows of a document, 1 to 100,000; 0 means 10,000.
	PageRows int `json:"page_rows,omitempty"`
	// Polls, Every, Timeout, MaxBytes, Tries and Backoff are as in remote.Limits. A poll reads
	// pages until one is empty.
	Polls    int     `json:"polls,omitempty"`
	Every    float64 `json:"every_s,omitempty"`
	Timeout  float64 `json:"timeout_s,omitempty"`
	MaxBytes int64   `json:"max_bytes,omitempty"`
	Tries    int     `json:"tries,omitempty"`
	Backoff  float64 `json:"backoff_s,omitempty"`
}

type sqlState struct {
	Polls  int     `json:"polls"`
	More   bool    `json:"more,omitempty"` // the poll has not seen an empty page
	Cursor *cursor `json:"cursor,omitempty"`
}

// cursor is a value of the cursor's column, with the type that the database gave it.
type cursor struct {
	Kind string `json:"kind"` // int, float, text or time
	Text string `json:"text"`
}

// cursorOf returns a value of a database as a cursor. Whole floats are ints, because JSON has one
// type of number for both.
func cursorOf(v any) (*cursor, error) {
	switch v := v.(type) {
	case int64:
		return &cursor{"int", strconv.FormatInt(v, 10)}, nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return &cursor{"int", strconv.FormatInt(int64(v), 10)}, nil
		}
		return &cursor{"float", strconv.FormatFloat(v, 'g', -1, 64)}, nil
	case string:
		return &cursor{"text", v}, nil
	case []byte:
		return &cursor{"text", string(v)}, nil
	case time.Time:
		return &cursor{"time", v.Format(time.RFC3339Nano)}, nil
	}
	return nil, fmt.Errorf("a cursor is a number, a text or a time, not %T", v)
}

// value returns the argument for $1, with the type that the database gave the value.
func (c *cursor) value() (any, error) {
	switch c.Kind {
	case "int":
		return strconv.ParseInt(c.Text, 10, 64)
	case "float":
		return dialect.Float(c.Text, 64)
	case "time":
		return time.Parse(time.RFC3339Nano, c.Text)
	}
	return c.Text, nil
}

// sqlFetcher reads a table page by page, in transactions that only read. The cursor is the whole
// position, so a row that appears later with a smaller cursor is not read.
type sqlFetcher struct {
	passive
	poller
	where  string // for messages
	spec   SQLSpec
	cols   rows.ColumnSpec
	db     *sql.DB
	driver remote.Database
	start  *cursor
}

// newSQLFetcher returns the fetcher of a database. It makes no connection yet. The query is checked
// for its form alone; the database limits what it can do.
func newSQLFetcher(
	uri string, spec *SQLSpec, cols rows.ColumnSpec, files *files.Files, guard *access.Guard, secrets *access.Store,
) (_ *sqlFetcher, err error) {
	f := &sqlFetcher{where: remote.WithoutQuery(uri), cols: cols}
	bad := badSource(f.where)
	if spec == nil {
		return nil, bad("it needs sql with a query, a cursor and a start")
	}
	f.spec = *spec
	if f.limits, err = (remote.Limits{
		Polls: spec.Polls, Every: spec.Every, Timeout: spec.Timeout,
		MaxBytes: spec.MaxBytes, Tries: spec.Tries, Backoff: spec.Backoff,
	}).WithDefaults(); err != nil {
		return nil, bad("%v", err)
	}
	if f.spec.PageRows == 0 {
		f.spec.PageRows = 10_000
	}
	if f.spec.PageRows < 1 || f.spec.PageRows > 100_000 {
		return nil, bad("page_rows %d: use 1 to 100000", spec.PageRows)
	}
	// This catches mistakes. It is not what keeps the query from writing: the transaction and the
	// rights of the login do.
	word, _, _ := strings.Cut(strings.ToUpper(strings.Join(strings.Fields(spec.Query), " ")), " ")
	if word != "SELECT" && word != "WITH" || strings.ContainsAny(spec.Query, ";\x00") ||
		!strings.Contains(spec.Query, "$1") ||
		len(spec.Query) > 64<<10 {
		return nil, bad(
			"its query must be one SELECT without a semicolon, of at most 64 KiB, with $1 where the last value of " +
				"the cursor stands",
		)
	}
	if f.start, err = cursorOf(spec.Start); err != nil || spec.Cursor == "" {
		return nil, bad("it needs cursor, the name of a column, and start, a number or a text")
	}
	scheme, _, _ := strings.Cut(uri, ":")
	if f.driver, err = remote.DatabaseDriver(scheme); err != nil {
		return nil, bad("%v", err)
	}
	if f.db, err = f.driver.Open(remote.DatabaseAddress{
		URI: uri, Password: spec.Password, TLS: spec.TLS, Files: files, Egress: guard, Secrets: secrets,
	}); err != nil {
		return nil, bad("%v", err)
	}
	// Pages are read one after another.
	f.db.SetMaxOpenConns(1)
	return f, nil
}

func (f *sqlFetcher) close() error { return f.db.Close() }

// fetch implements fetcher. A document is a page. A poll continues while pages are full, and the
// next poll begins after the pause of the specification.
func (f *sqlFetcher) fetch(ctx context.Context, at position, _ string, doc *os.File) (position, error) {
	st := sqlState{Cursor: f.start}
	if err := at.decode(f.where, &st); err != nil {
		return position{}, err
	}
	for {
		if !st.More {
			if more, err := f.begin(ctx, &st.Polls); err != nil {
				return position{}, err
			} else if !more {
				return f.position(st, "")
			}
		}
		count := 0
		err := f.limits.Retry().Do(ctx, func() (time.Duration, error) {
			if err := files.Rewind(doc); err != nil {
				return 0, retry.Permanent(err)
			}
			n, last, err := f.page(ctx, st.Cursor, doc)
			if err != nil {
				return 0, f.class(err)
			}
			if count = n; n > 0 {
				st.Cursor = last
			}
			return 0, nil
		})
		if err != nil {
			return position{}, err
		}
		// A page that is not full was the last one of this poll.
		if st.More = count == f.spec.PageRows; count > 0 {
			return f.position(st, "ndjson")
		}
	}
}

// position returns the position with a state. An empty format means that there is no document.
func (f *sqlFetcher) position(st sqlState, format rows.Format) (position, error) {
	return position{Format: format, Done: !st.More && st.Polls == f.limits.Polls}.with(f.where, st)
}

// class gives an error its class, and marks with retry.Permanent what no further try repairs.
// Errors that it does not know, such as a lost connection, are worth another try.
func (f *sqlFetcher) class(err error) error {
	var typed *jobs.Error
	if errors.As(err, &typed) {
		return retry.Permanent(err)
	}
	if access.Refused(err) {
		return retry.Permanent(jobs.Errorf(jobs.CodeInvalid, "source %s: %v", f.where, err))
	}
	if answer, is := f.driver.Failure(err); is && !answer.Transient {
		return retry.Permanent(access.InputError("%s: %s: correct the query or the database", f.where, answer.Text))
	}
	return jobs.Errorf(jobs.CodeIO, "query %s: %v", f.where, err)
}

// page writes the next rows into doc as NDJSON, and returns their number and the last cursor. It
// reads at most PageRows rows and MaxBytes bytes, also if the query returns more. Each call has a
// separate transaction.
func (f *sqlFetcher) page(ctx context.Context, from *cursor, doc io.Writer) (n int, last *cursor, err error) {
	ctx, cancel := context.WithTimeout(ctx, f.limits.RequestTimeout())
	defer cancel()
	conn, err := f.db.Conn(ctx)
	if err != nil {
		return 0, nil, err
	}
	defer conn.Close()
	if err := f.driver.Limit(conn); err != nil {
		return 0, nil, err
	}
	// A transaction that only reads is rolled back in every case.
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = tx.Rollback() }()
	arg, err := from.value()
	if err != nil {
		return 0, nil, access.InputError("%s: cursor %s: %v", f.where, access.Quote(from.Text), err)
	}
	result, err := tx.QueryContext(ctx, f.spec.Query, arg)
	if err != nil {
		return 0, nil, err
	}
	defer result.Close()
	names, err := result.Columns()
	if err != nil {
		return 0, nil, err
	}
	// The cursor is looked up with the features, so at[0] is the timestamp and at[1] the cursor.
	at, err := rows.ColumnSpec{
		Timestamp: f.cols.Timestamp,
		Features:  append([]string{f.spec.Cursor}, f.cols.Features...),
		Key:       f.cols.Key,
	}.Find(f.where, names)
	if err != nil {
		return 0, nil, err
	}
	values := make([]any, len(names))
	into := make([]any, len(names))
	for i := range values {
		into[i] = &values[i]
	}
	w := bufio.NewWriter(files.ScratchWriter(doc))
	var size int64
	var line []byte
	for n < f.spec.PageRows && result.Next() {
		if err := result.Scan(into...); err != nil {
			return 0, nil, err
		}
		if last, err = cursorOf(values[at[1]]); err != nil {
			return 0, nil, access.InputError("%s: column %q: %v", f.where, f.spec.Cursor, err)
		}
		line = append(rows.AppendJSON(append(line[:0], '{'), f.cols.Timestamp), ':')
		line = appendValue(line, values[at[0]], false)
		for i, name := range f.cols.Features {
			if name == f.cols.Timestamp || slices.Contains(f.cols.Features[:i], name) {
				continue // a member stands in an object once
			}
			line = appendValue(append(rows.AppendJSON(append(line, ','), name), ':'), values[at[2+i]], true)
		}
		for k, name := range f.cols.Key {
			line = append(rows.AppendJSON(append(line, ','), name), ':')
			line = appendValue(line, values[at[2+len(f.cols.Features)+k]], false)
		}
		line = append(line, '}', '\n')
		if size += int64(len(line)); size > f.limits.MaxBytes {
			return 0, nil, access.InputError(
				"%s: a page is longer than %d bytes: raise max_bytes or lower page_rows", f.where, f.limits.MaxBytes,
			)
		}
		if _, err := w.Write(line); err != nil {
			return 0, nil, err
		}
		n++
	}
	// After a full page the rest of the result is not read, so its errors do not count.
	if n < f.spec.PageRows {
		if err := result.Err(); err != nil {
			return 0, nil, err
		}
	}
	return n, last, w.Flush()
}

// appendValue appends a value of a database as JSON. A decimal arrives as a text; for a feature it
// is written as a number. A number that is not finite becomes a text, which the reader of the
// document rejects with a reason. Long texts are cut at 4 KiB.
func appendValue(b []byte, v any, number bool) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return rows.AppendJSON(b, strconv.FormatFloat(v, 'g', -1, 64))
		}
		return rows.AppendNumber(b, v, 64)
	case bool:
		return strconv.AppendBool(b, v)
	case time.Time:
		return rows.AppendJSON(b, v.UTC().Format(time.RFC3339Nano))
	case []byte:
		return appendValue(b, string(v), number)
	case string:
		if number && len(v) < 400 && json.Valid([]byte(v)) {
			if _, err := strconv.ParseFloat(v, 64); err == nil {
				return append(b, v...)
			}
		}
		return rows.AppendJSON(b, v[:min(len(v), 4096)])
	}
	return rows.AppendJSON(b, fmt.Sprint(v))
}
