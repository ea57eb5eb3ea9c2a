package remote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"modernc.org/sqlite"

	"github.com/exoswarm/exoswarm/cpuagents/egress"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/secret"
)

// OpenSQLite opens a database below a root, for reading or for writing. If the file is missing,
// writing creates it. uri is file:ROOT/PATH. A writer syncs every commit and takes the lock at the
// begin of a transaction; it waits up to a second for another writer. The caller closes the
// database, and calls LimitSQLite for each connection that runs statements of a user.
func OpenSQLite(f *files.Files, uri string, write bool) (*sql.DB, error) {
	flags, query := os.O_RDONLY, "mode=ro&_pragma=query_only(1)"
	if write {
		flags, query = os.O_RDWR|os.O_CREATE, "mode=rw&_txlock=immediate&_pragma=synchronous(full)"
	}
	real, err := f.RealPath(uri, flags)
	if err != nil {
		return nil, err
	}
	u := url.URL{
		Scheme: "file",
		Opaque: (&url.URL{Path: real}).EscapedPath(),
		RawQuery: query + "&_pragma=hard_heap_limit(" + strconv.Itoa(sqlHeap) +
			")&_pragma=busy_timeout(1000)&_pragma=trusted_schema(0)",
	}
	return sql.Open("sqlite", u.String())
}

// sqlValue bounds a value of SQLite and a row of PostgreSQL, in bytes. sqlHeap bounds the memory of
// all SQLite connections of the process together, which is page caches and sorting.
const (
	sqlValue = 16 << 20
	sqlHeap  = 64 << 20
)

// Categories of sqlite3_limit.
const (
	liteLength   = 0
	liteAttached = 7
)

// LimitSQLite bounds what a statement of a connection may use: no other file, and no value that
// takes all of the memory. The limits belong to a connection, so they are set for each one that is
// opened.
func LimitSQLite(conn *sql.Conn) error {
	for id, most := range map[int]int{liteAttached: 0, liteLength: sqlValue} {
		if _, err := sqlite.Limit(conn, id, most); err != nil {
			return err
		}
	}
	return nil
}

// OpenPostgres returns a database at postgres://USER@HOST:PORT/DATABASE. It makes no connection
// yet; each connection passes the guard. The agent's own environment gives no host, password or
// key. The parameter password refers to a secret, empty for none, and mode is the mode of TLS:
// verify-full (also if empty), require or disable. The caller closes the database. Errors never
// contain the password.
func OpenPostgres(
	uri, password, mode string, readOnly bool, guard *egress.Guard, secrets *secret.Store,
) (*sql.DB, error) {
	u, err := url.Parse(uri)
	if err != nil || u.Hostname() == "" || u.User == nil || u.RawQuery != "" || u.Fragment != "" ||
		strings.Trim(u.Path, "/") == "" {
		return nil, errors.New("write postgres://USER@HOST:PORT/DATABASE")
	}
	if _, has := u.User.Password(); has {
		return nil, errors.New("its URI holds a password: name a secret of the agent with password")
	}
	if mode == "" {
		mode = "verify-full"
	}
	if !slices.Contains([]string{"verify-full", "require", "disable"}, mode) {
		return nil, fmt.Errorf("tls %q: use verify-full, require or disable", mode)
	}
	quote := func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" }
	port := u.Port()
	if port == "" {
		port = "5432"
	}
	cfg, err := pgx.ParseConfig(fmt.Sprintf(
		"host=%s port=%s user=%s dbname=%s sslmode=%s passfile='' password=x",
		quote(u.Hostname()), quote(port), quote(u.User.Username()), quote(strings.Trim(u.Path, "/")), mode,
	))
	if err != nil {
		return nil, errors.New("write postgres://USER@HOST:PORT/DATABASE")
	}
	cfg.Password = ""
	if password != "" {
		if secrets == nil {
			secrets = &secret.Store{}
		}
		v, err := secrets.At(u.Hostname()).Get(password)
		if err != nil {
			return nil, err
		}
		cfg.Password = v.Reveal()
	}
	if guard == nil {
		guard = &egress.Guard{}
	}
	cfg.DialFunc = guard.DialContext
	// the guard resolves
	cfg.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	cfg.ConnectTimeout = 30 * time.Second
	cfg.MaxProtocolMessageBodyLen = sqlValue // a row is held as a whole
	if readOnly {
		cfg.RuntimeParams["default_transaction_read_only"] = "on"
	}
	return stdlib.OpenDB(*cfg), nil
}

// PostgresTransient reports whether PostgreSQL may succeed later, by the code of its error:
// connections, resources, rollbacks and interventions of an operator. The code is an SQLSTATE; its
// first two characters are the class.
func PostgresTransient(code string) bool {
	return slices.Contains([]string{"08", "53", "40", "57"}, code[:min(2, len(code))])
}

// SQLiteTransient reports whether SQLite may succeed later, by the code of its error: busy, locked
// or interrupted. The code may be an extended one, whose low byte is the primary code.
func SQLiteTransient(code int) bool {
	c := code & 0xff
	return c == 5 || c == 6 || c == 9
}
