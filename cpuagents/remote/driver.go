package remote

import (
	"database/sql"
	"errors"
	"fmt"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
)

// Drivers of object stores and databases register themselves when they are imported, as those of
// database/sql do. So a program links only the libraries of the drivers that it imports. The
// commands import package drivers, which imports all of them.

// ErrNoDriver means that the program has no driver for the scheme of a URI.
var ErrNoDriver = errors.New("this program has no driver for it")

// OpenBucket opens a bucket by its name. It makes no connection. An answer of more than most bytes
// fails with ErrLong. Every connection goes through the guard.
type OpenBucket func(
	name string, spec StoreSpec, most int64, guard *access.Guard, secrets *access.Store,
) (Bucket, error)

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
	stores    map[string]OpenBucket
	databases map[string]Database
}

// RegisterStore registers the driver of an object store for a scheme. It panics if the scheme has a
// driver already.
func RegisterStore(scheme string, open OpenBucket) {
	registered.Lock()
	defer registered.Unlock()
	register(&registered.stores, scheme, open)
}

// RegisterDatabase registers the driver of a database for a scheme. It panics if the scheme has a
// driver already.
func RegisterDatabase(scheme string, d Database) {
	registered.Lock()
	defer registered.Unlock()
	register(&registered.databases, scheme, d)
}

func register[D any](all *map[string]D, scheme string, driver D) {
	if _, is := (*all)[scheme]; is {
		panic("remote: two drivers for " + scheme)
	}
	if *all == nil {
		*all = map[string]D{}
	}
	(*all)[scheme] = driver
}

// storeDriver returns the driver of object stores for a scheme.
func storeDriver(scheme string) (OpenBucket, error) {
	registered.RLock()
	defer registered.RUnlock()
	return lookup(registered.stores, scheme)
}

// DatabaseDriver returns the driver of databases for a scheme. The error wraps ErrNoDriver.
func DatabaseDriver(scheme string) (Database, error) {
	registered.RLock()
	defer registered.RUnlock()
	return lookup(registered.databases, scheme)
}

// packages are the drivers of this module, for messages.
var packages = map[string]string{"s3": "cloud", "gs": "cloud", "postgres": "postgres", "sqlite": "sqlite"}

func lookup[D any](all map[string]D, scheme string) (D, error) {
	d, is := all[scheme]
	switch name := packages[scheme]; {
	case is:
		return d, nil
	case name != "":
		return d, fmt.Errorf("%s: %w: import github.com/exoswarm/exoswarm/cpuagents/remote/%s in package main", scheme,
			ErrNoDriver, name)
	}
	return d, fmt.Errorf("%s: %w: call its registration in package main", scheme, ErrNoDriver)
}
