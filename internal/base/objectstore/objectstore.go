// Package objectstore is the contract of the buckets of object stores. Package cloud registers the
// drivers of the protocol S3 and of Google's object store.
//
// It has two users. Sources and sinks of CPU agents (package cpuagents/remote) hand in a client
// that passes the egress guard and bounds each answer. Snapshots (package internal/app/bucket) use
// the login of the process.
package objectstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
)

// Bucket is a bucket of an object store. An object is there as a whole or not at all. Methods may
// be called concurrently, except Close, which is the last call. Status tells which errors a
// repetition may repair.
type Bucket interface {
	// Page adds up to size objects below a prefix in the order of their keys, and returns the token
	// of the next page; empty for none. The first token is empty. With a delimiter, the keys up to
	// the next delimiter behind the prefix are added once, as folders. They end in it. Another version
	// of an object has another tag.
	Page(
		ctx context.Context, prefix, delimiter, token string, size int, add func(key string, size int64, tag string),
	) (next string, err error)
	// Read returns the contents of an object. It fails with status 412 if the object has another
	// tag. An empty tag reads any version, and so does a store that cannot tell.
	Read(ctx context.Context, key, tag string) (io.ReadCloser, error)
	// Put replaces an object.
	Put(ctx context.Context, key, mediaType string, data []byte) error
	// Create begins an object. The caller ends it with Commit or Abort.
	Create(ctx context.Context, key string) (Upload, error)
	// Delete removes an object. It fails with status 404 if there is none, or succeeds.
	Delete(ctx context.Context, key string) error
	// Status returns the status of HTTP and the code of the answer to a call that failed with err; 0
	// for an error of another kind. It is 200 for an answer that no object store gives.
	Status(err error) (status int, code string)
	// Close releases the connections.
	Close() error
}

// Upload is an object on its way. It replaces an earlier one when it is committed. One goroutine
// calls its methods.
type Upload interface {
	io.Writer
	Commit() error
	// Abort drops the object. After Commit, or a second time, it does nothing.
	Abort()
}

// Options say which bucket a driver opens, and as whom.
type Options struct {
	Bucket string
	// Client sends all requests. The login is then what the fields below say, or none: nothing is
	// taken from the environment, the files or the cloud of the process, and nothing is repeated.
	// nil: the login of the process, and Query has further settings.
	Client *http.Client
	Query  url.Values // endpoint and more, see the drivers

	Endpoint string // URL of another store of the same protocol; empty: Amazon's or Google's
	Region   string // of S3
	// AccessKey, SecretKey and SessionToken log in to S3. Account is for Google's store: the key of a
	// service account as JSON.
	AccessKey, SecretKey, SessionToken string
	Account                            []byte
	// TokenURL checks the address at which an account gets its tokens.
	TokenURL func(address string) error
}

// Driver opens a bucket. It makes no connection.
type Driver func(ctx context.Context, o Options) (Bucket, error)

// Errors of Open and of buckets.
var (
	// ErrNoDriver: the program has no driver for the scheme. A command has drivers when it is built
	// with the tag connectors; another program imports package cloud in package main.
	ErrNoDriver = errors.New("this program is built without this connector: use the program of a release, or " +
		"build it with -tags connectors")
	// ErrAccount: Options.Account is no key, or TokenURL refuses its address.
	ErrAccount = errors.New("this is no key of a service account")
	// ErrAnswer: the answer is not of the protocol.
	ErrAnswer = errors.New("its answer is not the answer of an object store")
)

var drivers struct {
	sync.RWMutex
	of map[string]Driver // by scheme
}

// Register registers the driver of a scheme when a package is imported, as drivers of database/sql
// do. So only a program that imports package cloud links the clients of the stores. It panics if
// the scheme has a driver already.
func Register(scheme string, d Driver) {
	drivers.Lock()
	defer drivers.Unlock()
	if _, is := drivers.of[scheme]; is {
		panic("objectstore: two drivers for " + scheme)
	}
	if drivers.of == nil {
		drivers.of = map[string]Driver{}
	}
	drivers.of[scheme] = d
}

// Open opens a bucket with the driver of a scheme.
func Open(ctx context.Context, scheme string, o Options) (Bucket, error) {
	drivers.RLock()
	d, is := drivers.of[scheme]
	drivers.RUnlock()
	if !is {
		return nil, fmt.Errorf("%s: %w", scheme, ErrNoDriver)
	}
	return d(ctx, o)
}

// Missing reports whether a status says that there is no such object.
func Missing(status int) bool { return status == http.StatusNotFound }

// Transient reports whether a repetition may repair a call that failed with a status: it had no
// answer, or 408, 429 or 5xx, as Google's documents say.
func Transient(status int) bool {
	return status == 0 || status == http.StatusRequestTimeout || status == http.StatusTooManyRequests || status >= 500
}
