// Package cloud is the buckets of object stores with the protocol S3 and of Google's object store.
// It registers them with package bucket.
package cloud

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"strings"
	"time"

	"google.golang.org/api/option"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/objectstore"
	"github.com/exoswarm/exoswarm/internal/base/retry"
)

func init() {
	bucket.Register("s3", openS3)
	bucket.Register("gs", openGCS)
}

// openS3 opens a bucket of Amazon's store, or of a store with the same protocol.
func openS3(ctx context.Context, u *url.URL, prefix string) (bucket.Bucket, error) {
	b, err := objectstore.OpenS3(ctx, u)
	if err != nil {
		return nil, err
	}
	return Below(b, prefix, 1), nil // its client repeats calls itself
}

// openGCS opens a bucket of Google's store. The login is that of the environment (application
// default credentials), unless the query has anonymous=true.
func openGCS(ctx context.Context, u *url.URL, prefix string) (bucket.Bucket, error) {
	options := []option.ClientOption{option.WithScopes(objectstore.GoogleScope)}
	endpoint := ""
	for k, v := range u.Query() {
		switch {
		case k == "endpoint":
			endpoint = v[0]
			e, err := url.Parse(endpoint)
			if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Host == "" || e.RawQuery != "" {
				return nil, fmt.Errorf("endpoint %q: write the URL of a store", v[0])
			}
		case k == "anonymous" && v[0] == "true":
			options = append(options, option.WithoutAuthentication())
		default:
			return nil, fmt.Errorf("unknown query parameter %s=%s: use endpoint=URL and anonymous=true", k, v[0])
		}
	}
	// Connections of the client end by themselves when they are idle.
	b, err := objectstore.OpenGCS(ctx, u.Host, endpoint, func() {}, options...)
	if err != nil {
		return nil, err
	}
	return Below(b, prefix, 5), nil
}

// below implements bucket.Bucket over the objects below a prefix.
type below struct {
	b      objectstore.Bucket
	prefix string // empty, or it ends in a slash
	tries  int
}

// Below returns the bucket of the objects whose keys begin with a prefix. The prefix is empty or
// ends in a slash. Each call but those of uploads has a number of tries.
func Below(b objectstore.Bucket, prefix string, tries int) bucket.Bucket {
	return below{b, prefix, tries}
}

// again calls once until it succeeds, fails with an answer that no repetition changes, or has no
// more tries. It repeats after the answers 408, 429 and 5xx, as Google's documents say. It returns
// the status of the answer to the last call.
func (b below) again(ctx context.Context, once func() error) (status int, err error) {
	err = retry.Policy{Tries: b.tries, Base: 200 * time.Millisecond}.Do(ctx, func() (time.Duration, error) {
		err := once()
		status, _ = b.b.Status(err)
		if err != nil && status > 0 && status < 500 && status != http.StatusRequestTimeout &&
			status != http.StatusTooManyRequests {
			err = retry.Permanent(err)
		}
		return 0, err
	})
	return status, err
}

// Create implements snapshot.Store. The store itself promises that an object is whole or absent.
func (b below) Create(ctx context.Context, name string) (snapshot.Object, error) {
	u, err := b.b.Create(ctx, b.prefix+name)
	if err != nil {
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return u, nil
}

// Open implements snapshot.Store.
func (b below) Open(ctx context.Context, name string) (in io.ReadCloser, err error) {
	status, err := b.again(ctx, func() (err error) { in, err = b.b.Read(ctx, b.prefix+name, ""); return err })
	switch {
	case status == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	case err != nil:
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return in, nil
}

// Sweep implements snapshot.Store: there is nothing to see of unfinished uploads.
func (below) Sweep(context.Context, string) error { return nil }

// page returns a page of the names below a folder, and the token of the next one. The folder is
// empty or ends in a slash. The names have no folder.
func (b below) page(ctx context.Context, folder, delimiter, token string) (names []string, next string, err error) {
	_, err = b.again(ctx, func() (err error) {
		names = nil
		next, err = b.b.Page(ctx, b.prefix+folder, delimiter, token, 1000, func(key string, _ int64, _ string) {
			names = append(names, strings.TrimPrefix(key, b.prefix+folder))
		})
		return err
	})
	if err != nil {
		return nil, "", fmt.Errorf("list objects: %w", err)
	}
	return names, next, nil
}

// list returns all names below a folder.
func (b below) list(ctx context.Context, folder, delimiter string) (all []string, err error) {
	for token := ""; ; {
		var names []string
		if names, token, err = b.page(ctx, folder, delimiter, token); err != nil {
			return nil, err
		}
		if all = append(all, names...); token == "" {
			return all, nil
		}
	}
}

// Folders implements snapshot.Store.
func (b below) Folders(ctx context.Context) (all []string, err error) {
	names, err := b.list(ctx, "", "/")
	for _, n := range names {
		if folder, is := strings.CutSuffix(n, "/"); is {
			all = append(all, folder)
		}
	}
	return all, err
}

// Names implements bucket.Bucket.
func (b below) Names(ctx context.Context, folder string) ([]string, error) {
	return b.list(ctx, folder+"/", "")
}

// Drop implements bucket.Bucket.
func (b below) Drop(ctx context.Context, name string) error {
	status, err := b.again(ctx, func() error { return b.b.Delete(ctx, b.prefix+name) })
	if err != nil && status != http.StatusNotFound {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// Remove implements bucket.Bucket.
func (b below) Remove(ctx context.Context, name string) error {
	if err := b.Drop(ctx, name+"/"+snapshot.ManifestName); err != nil {
		return err
	}
	for {
		names, _, err := b.page(ctx, name+"/", "", "")
		if err != nil || len(names) == 0 {
			return err
		}
		for _, n := range names {
			if err := b.Drop(ctx, name+"/"+n); err != nil {
				return err
			}
		}
	}
}

// Close implements bucket.Bucket.
func (b below) Close() error { return b.b.Close() }
