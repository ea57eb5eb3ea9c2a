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

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/objectstore"
)

// ErrInvalid is a URL that names no place for objects.
var ErrInvalid = errors.New("invalid place for objects")

// Bucket keeps objects until it is closed. Methods may be called from several goroutines.
type Bucket interface {
	snapshot.Store
	// Remove removes all objects below a folder, the manifest of a snapshot first: objects without
	// a manifest are no snapshot. A folder that does not exist is no error.
	Remove(ctx context.Context, folder string) error
	// Names lists the second parts of the names of the objects in a folder, in any order. A folder
	// that does not exist has none.
	Names(ctx context.Context, folder string) ([]string, error)
	// Drop removes an object. One that does not exist is no error.
	Drop(ctx context.Context, name string) error
	// Close releases it. It comes after the last call of another method.
	Close() error
}

// Open opens a place by its URL. A folder is a path or file:///PATH, and is made if it is missing.
// s3://BUCKET/PREFIX takes the query of gocloud.dev's s3blob, such as region and endpoint, and the
// credentials of AWS's own tools. gs://BUCKET/PREFIX has the application default credentials, or
// none with anonymous=true; endpoint names another store of that protocol.
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
	b, err := objectstore.Open(ctx, u.Scheme, objectstore.Options{Bucket: u.Host, Query: u.Query()})
	if err != nil {
		u.Path = ""
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, u.Redacted(), err)
	}
	tries := 5
	if u.Scheme == "s3" { // its client repeats calls itself
		tries = 1
	}
	return Below(b, prefix, tries), nil
}

func openFolder(dir string) (Bucket, error) {
	b, err := OpenFolder(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return b, nil
}
