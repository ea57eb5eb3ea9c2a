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

	_ "gocloud.dev/blob/s3blob" // s3://

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/bucket/folder"
)

// ErrInvalid is a URL that names no place for objects.
var ErrInvalid = errors.New("invalid place for objects")

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
	if u.Scheme == "gs" {
		b, err = openGCS(ctx, u, prefix)
	} else {
		b, err = openS3(ctx, u, prefix)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, u.Redacted(), err)
	}
	return b, nil
}

// openFolder opens a folder of this machine.
func openFolder(dir string) (Bucket, error) {
	b, err := folder.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return b, nil
}
