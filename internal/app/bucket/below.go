package bucket

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/objectstore"
	"github.com/exoswarm/exoswarm/internal/base/retry"
)

// below implements Bucket over the objects below a prefix.
type below struct {
	b      objectstore.Bucket
	prefix string // empty, or it ends in a slash
	tries  int
}

// Below returns the bucket of the objects whose keys begin with a prefix. The prefix is empty or
// ends in a slash. Each call is tried a number of times, except the calls of an upload.
func Below(b objectstore.Bucket, prefix string, tries int) Bucket {
	return below{b, prefix, tries}
}

// again calls once until it succeeds, fails with an answer that no repetition changes, or has no
// more tries. It returns the status of the answer to the last call.
func (b below) again(ctx context.Context, once func() error) (status int, err error) {
	err = retry.Policy{Tries: b.tries, Base: 200 * time.Millisecond}.Do(ctx, func() (time.Duration, error) {
		err := once()
		status, _ = b.b.Status(err)
		if err != nil && !objectstore.Transient(status) {
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

func (b below) Open(ctx context.Context, name string) (in io.ReadCloser, err error) {
	status, err := b.again(ctx, func() (err error) { in, err = b.b.Read(ctx, b.prefix+name, ""); return err })
	switch {
	case objectstore.Missing(status):
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

func (b below) Folders(ctx context.Context) (all []string, err error) {
	names, err := b.list(ctx, "", "/")
	for _, n := range names {
		if folder, is := strings.CutSuffix(n, "/"); is {
			all = append(all, folder)
		}
	}
	return all, err
}

func (b below) Names(ctx context.Context, folder string) ([]string, error) {
	return b.list(ctx, folder+"/", "")
}

func (b below) Drop(ctx context.Context, name string) error {
	status, err := b.again(ctx, func() error { return b.b.Delete(ctx, b.prefix+name) })
	if err != nil && !objectstore.Missing(status) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

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

func (b below) Close() error { return b.b.Close() }
