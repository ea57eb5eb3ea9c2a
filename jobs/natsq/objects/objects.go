// Package objects stores files that travel between submitters and agents, and removes the files
// that no job needs any more.
//
// An object belongs to a job (jobs.Owner in its metadata), and does not expire by age. A sweeper in
// each CPU agent asks the streams whether anything is known of the job, and removes the object when
// nothing was known for a grace time. There are no counters, so a killed process leaves no wrong
// counter.
package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// Store reads and writes the object store of the cluster. Names of objects of different tenants
// never meet (jobs.Owner.Named). Its methods may be called from several goroutines.
type Store struct {
	conn  *natsconn.Conn
	known func(ctx context.Context, job string) (bool, error)
}

// New returns the store that a connection reaches. It starts nothing; each CPU agent calls
// KeepObjects. known reports whether the queue has anything of a job; the sweeper keeps the objects
// of the job as long. The connection stays the caller's.
func New(c *natsconn.Conn, known func(ctx context.Context, job string) (bool, error)) *Store {
	return &Store{conn: c, known: known}
}

// putTries is how often PutObject tries. Each message has a timeout of the client, so the tries
// together outlast the restart of a server.
const putTries = 4

// PutObject stores the content of r under a name of the owner, replaces an earlier object of the
// name, and returns the size in bytes. The object is kept as long as the job of the owner is known.
// If the server does not answer and r is an io.Seeker, PutObject tries again from the position that
// r had. It fails with jobs.ErrUnavailable after the last try. The caller closes r.
func (st *Store) PutObject(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error) {
	return st.PutNamed(ctx, of.Named(name), of, r)
}

// PutNamed is PutObject with the name that the store uses, whatever tenant the owner has.
func (st *Store) PutNamed(ctx context.Context, name string, of jobs.Owner, r io.Reader) (int64, error) {
	what := "store object " + name
	var from int64
	seeker, again := r.(io.Seeker)
	if again {
		var err error
		if from, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			again = false // for example a pipe
		}
	}
	u := upload{st: st, meta: jetstream.ObjectMeta{
		Name: name, Opts: &jetstream.ObjectMetaOptions{ChunkSize: chunkBytes},
	}}
	if of.Job != "" {
		u.meta.Metadata = map[string]string{metaJob: of.Job}
		if !of.Shared() {
			u.meta.Metadata[metaTenant] = of.Tenant
		}
	}
	var before natsconn.Violation
	for try := 1; ; try++ {
		attempt, end := st.conn.Attempt(ctx)
		n, err := u.put(attempt, r)
		by, cut := end(err)
		if cut && (by == before || try == 3 || !again) { // the chunks of each try have another subject
			return 0, fmt.Errorf("%s: %w", what, st.conn.Denied(by))
		}
		before = by
		switch {
		case err == nil:
			return n, nil
		case cut: // the refusal may belong to another call, so try once more
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

// DeleteObject removes an object of the owner. It returns nil if there is no such object. An object
// that is stored again meanwhile stays. A reader of the removed object gets an error instead of
// io.EOF.
func (st *Store) DeleteObject(ctx context.Context, name string, of jobs.Owner) error {
	name = of.Named(name)
	info, m, err := st.describe(ctx, name)
	if errors.Is(err, jobs.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete object %s: %w", name, err)
	}
	return st.remove(ctx, Object{Name: name, nuid: info.NUID, at: m})
}
