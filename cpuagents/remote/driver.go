package remote

import (
	"database/sql"
	"fmt"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/internal/base/objectstore"
)

// Drivers of databases register themselves when package drivers is imported, as drivers of
// database/sql do. A program that does not import it links none of their libraries.

// ErrNoDriver means that the program has no driver for the scheme of a URI.
var ErrNoDriver = objectstore.ErrNoDriver

// Database is the driver of one kind of database. Its methods may be called concurrently.
type Database interface {
	// Open opens a database. It makes no connection to another machine yet. The caller closes the
	// database.
	Open(at DatabaseAddress) (*sql.DB, error)
	// Limit bounds what the statements of a user may do on a connection. It is called once for each
	// connection that runs them.
	Limit(conn *sql.Conn) error
	// Failure returns what the database says of a failure, and reports whether err is such an answer.
	Failure(err error) (Failure, bool)
}

// DatabaseAddress says where a database is, and with which rights it is opened.
type DatabaseAddress struct {
	URI   string
	Write bool // a file that is missing is created; without it, every transaction only reads
	// Password refers to a secret, empty for none. TLS is verify-full (also if empty), require or
	// disable. Both are for servers.
	Password, TLS string
	Files         *files.Files  // the roots of databases that are files
	Egress        *access.Guard // of connections to servers
	Secrets       *access.Store
}

// Failure is an answer of a database that refuses.
type Failure struct {
	Text      string // for messages
	Transient bool   // the same may succeed later
	Exists    bool   // another client has made the same table or row at the same time
}

// registered are the drivers of the process by the scheme of their URIs.
var registered struct {
	sync.RWMutex
	databases map[string]Database
}

// RegisterDatabase registers the driver of a database for a scheme. It panics if the scheme has a
// driver already.
func RegisterDatabase(scheme string, d Database) {
	registered.Lock()
	defer registered.Unlock()
	if _, is := registered.databases[scheme]; is {
		panic("remote: two drivers for " + scheme)
	}
	if registered.databases == nil {
		registered.databases = map[string]Database{}
	}
	registered.databases[scheme] = d
}

// DatabaseDriver returns the driver of databases for a scheme. The error wraps ErrNoDriver.
func DatabaseDriver(scheme string) (Database, error) {
	registered.RLock()
	defer registered.RUnlock()
	d, is := registered.databases[scheme]
	if !is {
		return nil, fmt.Errorf("%s: %w", scheme, ErrNoDriver)
	}
	return d, nil
}
