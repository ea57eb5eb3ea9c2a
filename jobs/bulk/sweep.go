package bulk

import (
	"context"
	"errors"
	"time"
)

// Logs says what the logs of swarms need.
type Logs interface {
	// Kept returns the number of the last entry of a shard that a snapshot replaces: no replay reads
	// it or an entry before it. gone reports that there is no such swarm. swarm is a key, see
	// swarms.Swarm.Key.
	Kept(ctx context.Context, swarm string, shard int) (base uint64, gone bool, err error)
	// Last returns the number of the last entry in the log of a shard.
	Last(ctx context.Context, swarm string, shard int) (uint64, error)
}

// settleAfter is how long a payload may be without the number of its entry. A writer that has not
// appended the entry by then never does: the client bounds the time.
const settleAfter = time.Hour

// MaxAppend bounds the time from the Put of a payload to the append of its entry.
const MaxAppend = settleAfter / 2

// goneAfter is how long the payloads of a swarm stay that is not there: a process that is connected to
// another cluster by mistake, or to one that is being restored, must not remove them.
const goneAfter = time.Hour

// found is what a sweep has seen and done.
type found struct {
	payloads int
	bytes    int64
	released int
}

// sweeper removes payloads. One goroutine uses it.
type sweeper struct {
	spool *Spool
	logs  Logs
	// damaged has files without a valid head, and gone the shards of swarms that are not there, each
	// with the time when that was seen first.
	damaged map[string]time.Time
	gone    map[shardKey]time.Time
}

// shardKey is a shard of a swarm with a key.
type shardKey struct {
	swarm  string
	number int
}

func newSweeper(s *Spool, l Logs) *sweeper {
	return &sweeper{spool: s, logs: l, damaged: map[string]time.Time{}, gone: map[shardKey]time.Time{}}
}

// sweep looks at all payloads once. It keeps what it cannot find out about, and returns the errors.
func (w *sweeper) sweep(ctx context.Context, now time.Time) (all found, err error) {
	ids, err := w.spool.ids()
	if err != nil {
		return all, err
	}
	type state struct {
		base uint64
		gone bool
		err  error
	}
	known, gone := map[shardKey]state{}, map[shardKey]time.Time{}
	damaged := map[string]time.Time{}
	var errs []error
	for _, id := range ids {
		if ctx.Err() != nil {
			return all, context.Cause(ctx)
		}
		f, h, err := w.spool.open(id)
		switch {
		case errors.Is(err, ErrUnknown): // its writer has removed it
			continue
		case errors.Is(err, ErrDamaged): // its writer writes it, or was killed: it is in no log
			if damaged[id] = w.damaged[id]; damaged[id].IsZero() {
				damaged[id] = now
			}
			if now.Sub(damaged[id]) >= settleAfter {
				errs = append(errs, w.spool.remove(id))
			}
			continue
		case err != nil:
			errs = append(errs, err)
			continue
		}
		if err := f.Close(); err != nil {
			errs = append(errs, err)
		}
		all.payloads++
		all.bytes += int64(headSize + h.bytes)
		of := shardKey{h.swarm, h.shard}
		st, is := known[of]
		if !is {
			st.base, st.gone, st.err = w.logs.Kept(ctx, h.swarm, h.shard)
			if st.gone {
				if gone[of] = w.gone[of]; gone[of].IsZero() {
					gone[of] = now
				}
				st.gone = now.Sub(gone[of]) >= goneAfter
				st.base = 0
			}
			errs = append(errs, st.err)
			known[of] = st
		}
		switch {
		case st.err != nil:
		case st.gone, h.entry > 0 && h.entry <= st.base:
			if err := w.spool.remove(id); err != nil {
				errs = append(errs, err)
				break
			}
			all.payloads--
			all.bytes -= int64(headSize + h.bytes)
			all.released++
		case !gone[of].IsZero():
		case h.entry == 0 && now.Sub(h.created) >= settleAfter:
			last, err := w.logs.Last(ctx, h.swarm, h.shard)
			if err == nil {
				err = w.spool.note(id, max(last, 1))
			}
			errs = append(errs, err)
		}
	}
	w.damaged, w.gone = damaged, gone
	return all, errors.Join(errs...)
}
