package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
)

// remote is a bucket of an object store. An object there is whole or not at all by the store's own
// promise; what becomes of the parts of uploads that nobody has ended is a rule of the bucket's.
type remote struct {
	b      *blob.Bucket
	client io.Closer // of the store, where the bucket does not close it; nil otherwise
}

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

// Close implements Bucket.
func (r remote) Close() error {
	err := r.b.Close()
	if r.client != nil {
		err = errors.Join(err, r.client.Close())
	}
	return err
}
