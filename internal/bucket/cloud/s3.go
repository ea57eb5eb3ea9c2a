// Package cloud is the buckets of object stores with the protocol S3 and of Google's object store. It
// registers them with package bucket.
package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"strings"

	"gocloud.dev/blob"
	_ "gocloud.dev/blob/s3blob" // s3://
	"gocloud.dev/gcerrors"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/bucket"
)

func init() { bucket.Register("s3", openS3) }

// remote is a bucket of an object store that gocloud.dev opens. The store itself promises that an
// object is whole or absent; a rule of the bucket removes the parts of uploads that nobody ended.
type remote struct{ b *blob.Bucket }

// openS3 opens a bucket of Amazon's store, or of a store with the same protocol. prefix is empty or
// ends in a slash.
func openS3(ctx context.Context, u *url.URL, prefix string) (bucket.Bucket, error) {
	b, err := blob.OpenBucket(ctx, u.String())
	if err != nil {
		return nil, err
	}
	if prefix != "" {
		b = blob.PrefixedBucket(b, prefix)
	}
	return Wrap(b), nil
}

// Wrap returns a bucket of gocloud.dev. Tests use it with a bucket in memory.
func Wrap(b *blob.Bucket) bucket.Bucket { return remote{b} }

// Create implements snapshot.Store.
func (r remote) Create(ctx context.Context, name string) (snapshot.Object, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := r.b.NewWriter(ctx, name, &blob.WriterOptions{ContentType: "application/octet-stream"})
	if err != nil {
		cancel()
		return nil, fmt.Errorf("write %s: %w", name, err)
	}
	return &upload{Writer: w, cancel: cancel}, nil
}

// upload is an object on its way.
type upload struct {
	*blob.Writer
	cancel context.CancelFunc
	ended  bool
}

// Commit implements snapshot.Object.
func (u *upload) Commit() error {
	u.ended = true
	defer u.cancel()
	return u.Close()
}

// Abort implements snapshot.Object: an upload whose context has ended is given up.
func (u *upload) Abort() {
	if u.ended {
		return
	}
	u.ended = true
	u.cancel()
	_ = u.Close() // it says that it was given up
}

// Open implements snapshot.Store.
func (r remote) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	in, err := r.b.NewReader(ctx, name, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return in, nil
}

// Sweep implements snapshot.Store: there is nothing to see of unfinished uploads.
func (r remote) Sweep(context.Context, string) error { return nil }

// Folders implements snapshot.Store.
func (r remote) Folders(ctx context.Context) (all []string, err error) {
	list := r.b.List(&blob.ListOptions{Delimiter: "/"})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list objects: %w", err)
		}
		if o.IsDir {
			all = append(all, strings.TrimSuffix(o.Key, "/"))
		}
	}
}

// Names implements bucket.Bucket.
func (r remote) Names(ctx context.Context, folder string) (all []string, err error) {
	list := r.b.List(&blob.ListOptions{Prefix: folder + "/"})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, fmt.Errorf("list objects: %w", err)
		}
		all = append(all, strings.TrimPrefix(o.Key, folder+"/"))
	}
}

// Drop implements bucket.Bucket.
func (r remote) Drop(ctx context.Context, name string) error {
	if err := r.b.Delete(ctx, name); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// Remove implements bucket.Bucket.
func (r remote) Remove(ctx context.Context, name string) error {
	if err := r.Drop(ctx, name+"/"+snapshot.ManifestName); err != nil {
		return err
	}
	list := r.b.List(&blob.ListOptions{Prefix: name + "/"})
	for {
		o, err := list.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("list objects: %w", err)
		}
		if err := r.Drop(ctx, o.Key); err != nil {
			return err
		}
	}
}

// Close implements bucket.Bucket.
func (r remote) Close() error { return r.b.Close() }
