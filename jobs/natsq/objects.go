package natsq

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// PutObject stores everything that r yields under name, replacing what was there, and returns its length in bytes.
func (c *Conn) PutObject(ctx context.Context, name string, r io.Reader) (int64, error) {
	s, err := c.js.ObjectStore(ctx, objectBucket)
	if err != nil {
		return 0, fmt.Errorf("store object %s: %w", name, err)
	}
	info, err := s.Put(ctx, jetstream.ObjectMeta{Name: name}, r)
	if err != nil {
		return 0, fmt.Errorf("store object %s: %w", name, err)
	}
	return int64(info.Size), nil
}

// Object opens an object for reading. Its digest is checked at the end: a damaged object ends with an error, not with
// io.EOF. The caller closes it.
func (c *Conn) Object(ctx context.Context, name string) (io.ReadCloser, error) {
	s, err := c.js.ObjectStore(ctx, objectBucket)
	if err != nil {
		return nil, fmt.Errorf("open object %s: %w", name, err)
	}
	o, err := s.Get(ctx, name)
	if errors.Is(err, jetstream.ErrObjectNotFound) {
		return nil, fmt.Errorf("open object %s: %w", name, jobs.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open object %s: %w", name, err)
	}
	return o, nil
}

// DeleteObject removes an object. One that is not there is no error.
func (c *Conn) DeleteObject(ctx context.Context, name string) error {
	return c.retry(ctx, "delete object "+name, func(ctx context.Context) error {
		s, err := c.js.ObjectStore(ctx, objectBucket)
		if err != nil {
			return err
		}
		err = s.Delete(ctx, name)
		if errors.Is(err, jetstream.ErrObjectNotFound) {
			return nil
		}
		return err
	})
}
