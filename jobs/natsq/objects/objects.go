// Package objects is the store for files that travel between submitters and agents, and its
// sweeper.
package objects

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// Store keeps objects in the cluster's object store. Its methods may be called from several
// goroutines.
type Store struct {
	conn  *natsconn.Conn
	known func(ctx context.Context, job string) (bool, error)
}

// New returns the store that a connection reaches. known reports whether anything of a job exists:
// the sweeper keeps its objects as long. The connection stays the caller's.
func New(c *natsconn.Conn, known func(ctx context.Context, job string) (bool, error)) *Store {
	return &Store{conn: c, known: known}
}

// putTries is how often PutObject tries. With apiTimeout for each message it outlasts the restart
// of a server.
const putTries = 4

// PutObject stores everything that r yields under a name of the owner's, replacing what was there,
// and returns its length in bytes. The object stays as long as the owner's job. When the server
// does not answer, an r that is an io.Seeker is stored again from where it stood;
// jobs.ErrUnavailable when that does not help either.
func (st *Store) PutObject(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error) {
	return st.PutNamed(ctx, of.Named(name), of, r)
}

// PutNamed is PutObject under the store's own name.
func (st *Store) PutNamed(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error) {
	what := "store object " + name
	var from int64
	seeker, again := r.(io.Seeker)
	if again {
		var err error
		if from, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			again = false // a pipe, say
		}
	}
	var before natsconn.Violation
	for try := 1; ; try++ {
		attempt, end := st.conn.Attempt(ctx)
		n, err := st.putObject(attempt, name, of, r)
		by, cut := end(err)
		if cut && (by == before || !again) {
			return 0, fmt.Errorf("%s: %w", what, st.conn.Denied(by))
		}
		before = by
		switch {
		case err == nil:
			return n, nil
		case cut: // perhaps it was another call's
		case ctx.Err() != nil:
			return 0, fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case !natsconn.IsTransient(err):
			return 0, fmt.Errorf("%s: %w", what, st.conn.Explain(err))
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

func (st *Store) putObject(parent context.Context, name string, of jobs.Owner, r io.Reader) (int64, error) {
	// With a deadline in its context the client waits that long for a message that was lost,
	// without one apiTimeout.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	defer cancel(nil)
	defer context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })()
	s, err := st.conn.JS.ObjectStore(ctx, wire.ObjectBucket)
	if err != nil {
		return 0, err
	}
	meta := jetstream.ObjectMeta{Name: name}
	if of.Job != "" {
		meta.Metadata = map[string]string{metaJob: of.Job}
		if !of.Shared() {
			meta.Metadata[metaTenant] = of.Tenant
		}
	}
	info, err := s.Put(ctx, meta, r)
	if err != nil {
		return 0, err
	}
	return int64(info.Size), nil
}

// Object opens an object of the owner's for reading. Its digest is checked at the end: a damaged
// object ends with an error, not with io.EOF. The caller closes it.
func (st *Store) Object(ctx context.Context, name string, of jobs.Owner) (io.ReadCloser, error) {
	return st.OpenNamed(ctx, of.Named(name))
}

// OpenNamed is Object under the store's own name.
func (st *Store) OpenNamed(ctx context.Context, name string) (io.ReadCloser, error) {
	s, err := st.conn.JS.ObjectStore(ctx, wire.ObjectBucket)
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

// DeleteObject removes an object of the owner's. One that is not there is no error.
func (st *Store) DeleteObject(ctx context.Context, name string, of jobs.Owner) error {
	name = of.Named(name)
	m, err := st.conn.Last(ctx, objectStream, metaSubject(name))
	if errors.Is(err, jobs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete object %s: %w", name, err)
	}
	var info jetstream.ObjectInfo
	if err := json.Unmarshal(m.Data, &info); err != nil {
		return fmt.Errorf("delete object %s: its description: %w", name, err)
	}
	return st.remove(ctx, Object{Name: name, nuid: info.NUID, at: m})
}
