// Package statelog keeps the state of a detector in logs next to the log of its swarm: its
// positions, the dictionary of its entities, and how far its swarm has answered.
package statelog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Log is a log of JSON next to the log of a swarm. One goroutine uses it, and is the only writer
// unless another attempt takes the log over.
type Log struct {
	log  swarms.Log
	kind string // of its entries
	last uint64
}

// New returns the Log over l, whose entries have a kind. Call Open before any other method.
func New(l swarms.Log, kind string) *Log { return &Log{log: l, kind: kind} }

// Open creates the log if it is missing, and finds its end. Call it again after jobs.ErrFenced to
// append after the entries of the other writer.
func (l *Log) Open(ctx context.Context) error {
	if err := l.log.Create(ctx); err != nil {
		return err
	}
	last, err := l.log.Last(ctx)
	l.last = last.Seq
	return err
}

// Last returns the number of the last entry that Open has found or Add has appended; 0 for an empty
// log.
func (l *Log) Last() uint64 { return l.last }

// Fenced reports whether another writer has appended since Open or the last Add. The server may
// answer with an older end for a moment, so a false answer is no proof.
func (l *Log) Fenced(ctx context.Context) (bool, error) {
	now, err := l.log.Last(ctx)
	return now.Seq > l.last, err
}

// Add appends v as JSON. jobs.ErrFenced means that another writer has appended.
func (l *Log) Add(ctx context.Context, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", l.kind, err)
	}
	if err := l.log.Append(ctx, l.last, swarms.Entry{Kind: l.kind, Ref: l.last + 1, Data: data}); err != nil {
		return fmt.Errorf("store %s: %w", l.kind, err)
	}
	l.last++
	return nil
}

// Kept is the least number of entries that remain in a log after Trim.
const Kept = 64

// Trim removes all but the last Kept entries, once in Kept/2 calls of Add. It is for logs in which
// only the last entries count.
func (l *Log) Trim(ctx context.Context) error {
	if l.last%(Kept/2) != 0 || l.last <= Kept {
		return nil
	}
	return l.log.Trim(ctx, l.last-Kept+1)
}

// Read calls fn for the entries from number from on, up to the end that Open has found. The data
// belong to fn. An error of fn ends the reading, and makes it ErrDamaged.
func (l *Log) Read(ctx context.Context, from uint64, fn func(data []byte) error) error {
	return Each(ctx, l.log, from, l.last, func(e swarms.Entry) error {
		if err := fn(e.Data); err != nil {
			return fmt.Errorf("entry %d of the log of %s: %w: %w", e.Seq, l.kind, ErrDamaged, err)
		}
		return nil
	})
}

// Append appends an entry to a log right behind entry number after, which it moves to the new
// entry. Entries that others have appended meanwhile stay before it if allow returns nil for each,
// and otherwise its error ends the append.
func Append(ctx context.Context, log swarms.Log, after *uint64, e swarms.Entry, allow func(swarms.Entry) error) error {
	for {
		err := log.Append(ctx, *after, e)
		if err == nil {
			*after++
			return nil
		}
		if !errors.Is(err, jobs.ErrFenced) {
			return err
		}
		before := *after
		if err := CatchUp(ctx, log, after, allow); err != nil {
			return err
		}
		if *after == before { // the server has lost what it had acknowledged
			return err
		}
	}
}

// CatchUp moves after to the end of a log, if allow returns nil for each entry behind it.
func CatchUp(ctx context.Context, log swarms.Log, after *uint64, allow func(swarms.Entry) error) error {
	end, err := log.Last(ctx)
	if err != nil || end.Seq <= *after {
		return err
	}
	if err := Rest(ctx, log, *after+1, end.Seq, allow); err != nil {
		return err
	}
	*after = end.Seq
	return nil
}

// Rest is Each from the first entry on that was not removed. A log that is trimmed keeps the last
// entry with a note, and all behind it.
func Rest(ctx context.Context, log swarms.Log, from, to uint64, fn func(swarms.Entry) error) error {
	err := Each(ctx, log, from, to, fn)
	if trimmed := (*swarms.TrimmedError)(nil); errors.As(err, &trimmed) && trimmed.First > from {
		return Each(ctx, log, trimmed.First, to, fn)
	}
	return err
}

// Each calls fn for the entries of a log from number from to number to, both included. With to 0 it
// does nothing. It fails if entry from was removed.
func Each(ctx context.Context, log swarms.Log, from, to uint64, fn func(swarms.Entry) error) error {
	if to == 0 || from > to {
		return nil
	}
	r, err := log.Read(ctx, from)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		e, err := r.Next(ctx)
		if err != nil {
			return err
		}
		if e.Seq > to {
			return nil
		}
		if err := fn(e); err != nil {
			return err
		}
		if e.Seq == to {
			return nil
		}
	}
}
