package swarmlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Bounds returns the numbers of the first and the last entry of a log of a shard; last is 0 for a
// log that never had an entry. swarm is the key of its swarm. It fails with jobs.ErrNotFound if
// there is no such log. A viewer may call it.
func (sw *Swarms) Bounds(ctx context.Context, swarm string, shard int, d swarms.Direction) (first, last uint64,
	err error,
) {
	l := sw.Log(swarm, shard, d).(*Log)
	what := "read the bounds of " + l.stream
	first, last, err = sw.conn.Bounds(ctx, what, l.stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = fmt.Errorf("%s: %w", what, jobs.ErrNotFound)
	}
	return first, last, err
}

// scanAhead is the number of entries that a scanner asks for before they are wanted. Each has at
// most 1 MiB.
const scanAhead = 16

type scanned struct {
	entry swarms.Entry
	at    time.Time
	err   error
}

// scanner is a swarms.Reader of entries that exist. It asks for each by its number.
type scanner struct {
	sw     *Swarms
	swarm  string
	shard  int
	of     swarms.Direction
	next   uint64 // the next entry to ask for
	last   uint64
	asked  []chan scanned // in the order of the log
	cancel context.CancelFunc
	//nolint:containedctx // of the questions under way, which begin in one call of Next and end in another
	ctx context.Context
}

// scanShort is the number of entries up to which Scan makes no consumer.
const scanShort = 64

// Scan returns a reader of the entries first to last of a log; both must exist. The caller reads
// none behind the last one. ctx bounds the whole reading. A reader that follows a log uses
// Log.Read.
//
// A long range is read by a consumer. A login that may make none, such as a viewer's, gets the
// entries one by one, at a tenth of the rate.
func (sw *Swarms) Scan(ctx context.Context, swarm string, shard int, d swarms.Direction, first, last uint64) (
	swarms.Reader, error,
) {
	if last-first >= scanShort && !sw.noConsumers.Load() {
		r, err := sw.Log(swarm, shard, d).Read(ctx, first)
		if !errors.Is(err, jobs.ErrDenied) {
			return r, err
		}
		sw.noConsumers.Store(true)
	}
	s := &scanner{sw: sw, swarm: swarm, shard: shard, of: d, next: first, last: last}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s, nil
}

// Next implements swarms.Reader.
func (s *scanner) Next(ctx context.Context) (swarms.Entry, error) {
	for ; len(s.asked) < scanAhead && s.next <= s.last; s.next++ {
		got, seq := make(chan scanned, 1), s.next
		go func() {
			e, at, err := s.sw.Entry(s.ctx, s.swarm, s.shard, s.of, seq)
			got <- scanned{e, at, err}
		}()
		s.asked = append(s.asked, got)
	}
	if len(s.asked) == 0 {
		return swarms.Entry{}, fmt.Errorf("entry %d: it is behind the last one to read: %w", s.next, jobs.ErrNotFound)
	}
	select {
	case got := <-s.asked[0]:
		s.asked = s.asked[1:]
		return got.entry, got.err
	case <-ctx.Done():
		return swarms.Entry{}, context.Cause(ctx)
	}
}

// Close implements swarms.Reader. It waits for the questions under way.
func (s *scanner) Close() {
	s.cancel()
	for _, got := range s.asked {
		<-got
	}
	s.asked = nil
}
