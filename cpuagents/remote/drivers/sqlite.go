package drivers

import (
	"database/sql"
	"errors"
	"net/url"
	"os"
	"strconv"
	"strings"

	"modernc.org/sqlite"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
)

type sqliteDriver struct{}

// Open implements remote.Database. The URI is sqlite:ROOT/PATH. A writer syncs every commit and
// takes the lock at the start of a transaction; it waits up to a second for another writer.
func (sqliteDriver) Open(at remote.DatabaseAddress) (*sql.DB, error) {
	flags, query := os.O_RDONLY, "mode=ro&_pragma=query_only(1)"
	if at.Write {
		flags, query = os.O_RDWR|os.O_CREATE, "mode=rw&_txlock=immediate&_pragma=synchronous(full)"
	}
	real, err := at.Files.RealPath("file:"+strings.TrimPrefix(at.URI, "sqlite:"), flags)
	if err != nil {
		return nil, err
	}
	u := url.URL{
		Scheme: "file",
		Opaque: (&url.URL{Path: real}).EscapedPath(),
		RawQuery: query + "&_pragma=hard_heap_limit(" + strconv.Itoa(maxHeap) +
			")&_pragma=busy_timeout(1000)&_pragma=trusted_schema(0)",
	}
	return sql.Open("sqlite", u.String())
}

// maxValue bounds a value, in bytes. maxHeap bounds the memory of all connections of the process
// together, which is page caches and sorting.
const (
	maxValue = 16 << 20
	maxHeap  = 64 << 20
)

// Categories of sqlite3_limit.
const (
	limitLength   = 0
	limitAttached = 7
)

// Limit implements remote.Database: no other file, and no value that takes all of the memory.
func (sqliteDriver) Limit(conn *sql.Conn) error {
	for id, most := range map[int]int{limitAttached: 0, limitLength: maxValue} {
		if _, err := sqlite.Limit(conn, id, most); err != nil {
			return err
		}
	}
	return nil
}

// Failure implements remote.Database. A database that is busy, locked or interrupted may succeed
// later. The code may be an extended one, whose low byte is the primary code.
func (sqliteDriver) Failure(err error) (remote.Failure, bool) {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return remote.Failure{}, false
	}
	code := e.Code() & 0xff
	return remote.Failure{Text: err.Error(), Transient: code == 5 || code == 6 || code == 9}, true
}
