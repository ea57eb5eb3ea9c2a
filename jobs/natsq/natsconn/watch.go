package natsconn

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// watchPoll is how often a watch checks that its bucket was not replaced. It is well below the life
// of a lease, 10 s, and a question takes the server some 50 µs.
const watchPoll = time.Second

// watchLag is the number of polls after which a watch whose replica does not follow begins anew.
// The next consumer may be on another server.
const watchLag = 3

type removed struct{ bucket, key string }

var _ jetstream.KeyValueEntry = removed{}

func (r removed) Bucket() string                  { return r.bucket }
func (r removed) Key() string                     { return r.key }
func (r removed) Value() []byte                   { return nil }
func (r removed) Revision() uint64                { return 0 }
func (r removed) Created() time.Time              { return time.Time{} }
func (r removed) Delta() uint64                   { return 0 }
func (r removed) Operation() jetstream.KeyValueOp { return jetstream.KeyValuePurge }

// watch follows one bucket across reconnections, and across buckets of its name.
type watch struct {
	c      *Conn
	bucket string
	fn     func(jetstream.KeyValueEntry) // called with every entry and every change, one at a time
	synced func()                        // called when the state at the start of each try is through; nil: nobody
	known  map[string]bool               // the keys that fn has been told of and that are not removed
}

// once watches until something breaks or ctx ends. What fn was told of in an earlier call, and is
// not there any more, fn is told is removed once everything that is there is through: until then
// the former state stands.
func (w *watch) once(ctx context.Context) error {
	heard := w.c.NC.StatusChanged(nats.CONNECTED) // before the first request, or a reconnection would be missed
	defer w.c.NC.RemoveStatusListener(heard)
	first, err := w.info(ctx)
	if err != nil {
		return err
	}
	newest, err := w.newest(ctx)
	if err != nil {
		return err
	}
	kv, err := w.c.JS.KeyValue(ctx, w.bucket)
	if err != nil {
		return err
	}
	updates, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = updates.Stop() }()
	poll := time.NewTicker(watchPoll)
	defer poll.Stop()
	here, complete, last := map[string]bool{}, false, uint64(0)
	behind, since := uint64(0), 0 // a number that the leader has, and for how many turns it was waited for
	for {
		select {
		case u, ok := <-updates.Updates():
			switch {
			case !ok:
				return jobs.ErrUnavailable
			case u == nil:
				if last < newest {
					return errLags
				}
				complete = true
				last = max(last, first.State.LastSeq) // behind the newest entry there were only removed ones
				for key := range w.known {
					if !here[key] {
						delete(w.known, key)
						w.fn(removed{w.bucket, key})
					}
				}
				if w.synced != nil {
					w.synced()
				}
			default:
				last = u.Revision()
				put := u.Operation() == jetstream.KeyValuePut
				if !complete {
					here[u.Key()] = put
				}
				if put {
					w.known[u.Key()] = true
				} else {
					delete(w.known, u.Key())
				}
				w.fn(u)
			}
		case <-poll.C:
			now, err := w.info(ctx)
			switch {
			case errors.Is(err, jetstream.ErrStreamNotFound):
				return errRemade
			case err != nil: // the server is away: the reconnection says when it is back
			case !now.Created.Equal(first.Created) || now.State.LastSeq < last:
				return errRemade
			case last >= behind: // what the leader had at the last turn has come
				behind, since = now.State.LastSeq, 0
			default:
				if since++; complete && since > watchLag {
					return errLags
				}
			}
		case <-heard:
			return errReconnected
		case <-ctx.Done():
			return nil
		}
	}
}

// newest returns the number of the newest entry that the leader of the bucket has, 0 for none. The
// consumer of a watch is on any server. While the replica there lags behind, it leaves out entries
// and says that it is complete.
func (w *watch) newest(ctx context.Context) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, LongTry)
	defer cancel()
	m, err := w.c.LastOnce(ctx, "KV_"+w.bucket, "$KV."+w.bucket+".>")
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return 0, nil
	case err != nil:
		return 0, err
	}
	return m.Seq, nil
}

func (w *watch) info(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, LongTry)
	defer cancel()
	s, err := w.c.JS.Stream(ctx, "KV_"+w.bucket)
	if err != nil {
		return nil, err
	}
	return s.CachedInfo(), nil
}

// FollowBucket calls fn with every entry of a bucket and every change, one at a time, until ctx
// ends; synced is closed when what was there before is through. A watch that breaks begins anew,
// and until it is through again what fn was told stands.
func (c *Conn) FollowBucket(ctx context.Context, bucket string, synced chan struct{}, fn func(jetstream.KeyValueEntry),
	log *slog.Logger,
) {
	first := true
	w := &watch{c: c, bucket: bucket, fn: fn, known: map[string]bool{}, synced: func() {
		if first {
			first = false
			close(synced)
		}
	}}
	for {
		err := w.once(ctx)
		if ctx.Err() != nil {
			return
		}
		level := slog.LevelDebug // the connection logs this itself
		if errors.Is(err, errRemade) {
			level = slog.LevelInfo
		}
		log.Log(ctx, level, "watching again", "bucket", bucket, "reason", err)
		w.rest(ctx, err)
	}
}

// WatchBucket is follow that fails when the bucket cannot be watched at all. It returns nil when
// ctx ends.
func (c *Conn) WatchBucket(ctx context.Context, bucket string, fn func(jetstream.KeyValueEntry)) error {
	began := false
	w := &watch{c: c, bucket: bucket, known: map[string]bool{}, synced: func() { began = true }, fn: fn}
	for {
		err := w.once(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !began && !errors.Is(err, errLags):
			return err
		}
		w.rest(ctx, err)
	}
}

// rest waits before the next try, unless the reason for it is no failure.
func (w *watch) rest(ctx context.Context, err error) {
	if errors.Is(err, errReconnected) {
		return
	}
	select {
	case <-time.After(watchPoll):
	case <-ctx.Done():
	}
}

// CheckFollow fails when this login may not follow buckets. FollowBucket itself never stops trying.
func (c *Conn) CheckFollow(ctx context.Context, bucket string) error {
	return c.InBucket(ctx, "watch bucket "+bucket, bucket, func(ctx context.Context, kv jetstream.KeyValue) error {
		watch, err := kv.WatchAll(ctx, jetstream.UpdatesOnly())
		if err == nil {
			_ = watch.Stop()
		}
		return err
	})
}
