// Package bucket opens a place for named objects: a folder, or a bucket of an object store that
// speaks S3 or Google's protocol.
package bucket

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
)

// ErrInvalid is a URL that names no place for objects.
var ErrInvalid = errors.New("invalid place for objects")

// Opener opens a bucket at a URL without its path. prefix is what all names begin with: empty, or
// it ends in a slash. Nothing is sent before the first call of a method.
type Opener func(ctx context.Context, u *url.URL, prefix string) (Bucket, error)

// openers are those of the process by scheme. Package cloud registers those of s3 and gs when
// it is imported, as drivers of database/sql do. So only a program that imports it links the clients
// of these stores. The commands import it.
var openers struct {
	sync.RWMutex
	of map[string]Opener
}

// Register registers the opener of a scheme. It panics if the scheme has one already.
func Register(scheme string, open Opener) {
	openers.Lock()
	defer openers.Unlock()
	if _, is := openers.of[scheme]; is {
		panic("bucket: two openers for " + scheme)
	}
	if openers.of == nil {
		openers.of = map[string]Opener{}
	}
	openers.of[scheme] = open
}

// opener returns the opener of a scheme.
func opener(scheme string) (Opener, error) {
	openers.RLock()
	defer openers.RUnlock()
	open, is := openers.of[scheme]
	if !is {
		return nil, fmt.Errorf("this program has no store for %s://: import internal/app/bucket/cloud in package main",
			scheme)
	}
	return open, nil
}

// Bucket keeps objects until it is closed. Methods may be called from several goroutines.
type Bucket interface {
	snapshot.Store
	// Remove removes all objects below a folder, the manifest of a snapshot first: without it the
	// others are not a snapshot. A folder that does not exist is no error.
	Remove(ctx context.Context, folder string) error
	// Names lists the second parts of the names of the objects in a folder, in any order; none of a
	// folder that does not exist.
	Names(ctx context.Context, folder string) ([]string, error)
	// Drop removes an object. One that does not exist is no error.
	Drop(ctx context.Context, name string) error
	// Close releases it. It comes after the last call of another method.
	Close() error
}

// Open opens a place by its URL: a path or file:///PATH of a folder, which is made if it is
// missing, or s3://BUCKET/PREFIX with what gocloud.dev's s3blob takes in its query, such as region
// and endpoint; credentials come from where AWS's own tools have them. gs://BUCKET/PREFIX is one of
// Google's, with the application default credentials or anonymous=true in its query, and endpoint
// for another store of that protocol.
func Open(ctx context.Context, place string) (Bucket, error) {
	if !strings.Contains(place, "://") {
		if place == "" {
			return nil, fmt.Errorf("%w: it is empty: name a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
				ErrInvalid)
		}
		return openFolder(place)
	}
	u, err := url.Parse(place)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	switch {
	case u.Scheme == "file" && (u.Host == "" || u.Host == "localhost") && filepath.IsAbs(u.Path) && u.RawQuery == "":
		return openFolder(u.Path)
	case u.Scheme != "s3" && u.Scheme != "gs" || u.Host == "":
		return nil, fmt.Errorf("%w: %s: name a folder, file:///FOLDER, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
			ErrInvalid, u.Redacted())
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		prefix += "/"
	}
	u.Path = ""
	var b Bucket
	open, err := opener(u.Scheme)
	if err == nil {
		b, err = open(ctx, u, prefix)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, u.Redacted(), err)
	}
	return b, nil
}

// openFolder opens a folder of this machine.
func openFolder(dir string) (Bucket, error) {
	b, err := OpenFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return b, nil
}
