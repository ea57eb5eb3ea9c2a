package natsq

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// putTries is how often PutObject begins anew: with objectPatience for each message it outlasts the restart of a server.
const (
	putTries       = 4
	objectPatience = 10 * time.Second
)

// PutObject stores everything that r yields under name, replacing what was there, and returns its length in bytes. When the server
// does not answer, an r that is an io.Seeker is stored again from where it stood; jobs.ErrUnavailable when that does not help either.
func (c *Conn) PutObject(ctx context.Context, name string, r io.Reader) (int64, error) {
	what := "store object " + name
	var from int64
	seeker, again := r.(io.Seeker)
	if again {
		var err error
		if from, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			again = false // a pipe, say
		}
	}
	var before refusal
	for try := 1; ; try++ {
		a := c.refused.attempt(ctx)
		n, err := c.putObject(a.ctx, name, r)
		by, cut := a.end(err)
		if cut && (by == before || !again) {
			return 0, fmt.Errorf("%s: %w", what, c.refused.denied(by))
		}
		before = by
		switch {
		case err == nil:
			return n, nil
		case cut: // perhaps it was another call's
		case ctx.Err() != nil:
			return 0, fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case !transient(err):
			return 0, fmt.Errorf("%s: %w", what, c.refused.explain(err))
		case !again || try == putTries:
			return 0, fmt.Errorf("%s: %w: %w", what, err, jobs.ErrUnavailable)
		}
		if _, err := seeker.Seek(from, io.SeekStart); err != nil {
			return 0, fmt.Errorf("%s: read it again: %w", what, err)
		}
		select {
		case <-time.After(time.Duration(try) * 250 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func (c *Conn) putObject(parent context.Context, name string, r io.Reader) (int64, error) {
	// With a deadline in its context the client waits that long for a message that was lost, without one objectPatience.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	defer cancel(nil)
	defer context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })()
	s, err := c.js.ObjectStore(ctx, objectBucket)
	if err != nil {
		return 0, err
	}
	info, err := s.Put(ctx, jetstream.ObjectMeta{Name: name}, r)
	if err != nil {
		return 0, err
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
