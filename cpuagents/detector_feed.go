package cpuagents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// taken is a row of a source, or a reject, and the place behind it.
type taken struct {
	row      rows.Row
	rejected *rows.Reject
	at       source.Place
	read     time.Time
}

// piece is what the reader of a source hands over at a time.
type piece struct {
	source int
	rows   []taken
	pause  bool // the next document may take a while
	ended  bool
	err    error
}

// pieceRows bounds the rows of a piece.
const pieceRows = 256

// trimEvery is the number of marks after which the journals of the sources are trimmed.
const trimEvery = 64

// feed reads all sources at the same time, and appends their rows in batches. It returns nil when
// ctx ends with jobs.ErrFinish or all sources have ended and a finish is requested.
//
// Each source has a goroutine that reads; this one alone changes the batch and the state behind it.
// The channel has no buffer, so a slow swarm or sink stops the reading, and with it the source or
// its broker. All readers have ended when feed returns.
func (d *detection) feed(ctx, work context.Context) (err error) {
	reading, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	pieces := make(chan piece)
	var readers sync.WaitGroup
	defer readers.Wait()
	defer stop(nil)
	resources := d.sourceResources()
	resources.Logger = d.log.Logger
	d.batch = d.newBatch()
	started := false
	defer func() {
		if started {
			return // readPieces closes them
		}
		for _, r := range d.readers {
			_ = r.Close()
		}
	}()
	at := d.next.Sources
	if len(d.state.Missing) > 0 {
		at = append(slices.Clone(d.state.Last.Before), make([]source.Place, len(at))...)
	}
	for i, src := range d.spec.Sources {
		r, err := resources.OpenLasting(
			reading, d.stream.log(d.journalShard(i), swarms.In), d.spec.Name, i, src, d.spec.Columns, at[i],
		)
		if err != nil {
			if errors.Is(context.Cause(reading), jobs.ErrFinish) {
				return nil
			}
			return err
		}
		d.readers = append(d.readers, r)
	}
	if err := d.complete(work); err != nil {
		if errors.Is(context.Cause(reading), jobs.ErrFinish) {
			return nil // the next attempt completes the batch
		}
		return err
	}
	started = true
	for i, r := range d.readers {
		readers.Go(func() { readPieces(reading, i, r, pieces) })
	}
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case p := <-pieces:
			if err := d.take(work, p); err != nil {
				return err
			}
		case <-look.C:
			d.count()
			if err := d.stale(work); err != nil {
				return err
			}
		case <-reading.Done():
			if cause := context.Cause(work); cause != nil {
				return cause
			}
			// What was read is decided. What a reader still has is read again by the next job.
			if err := d.flush(work); err != nil {
				return err
			}
			return d.trimJournals(work)
		}
	}
}

// staleEvery is the time between two looks for a later attempt.
const staleEvery = 5 * time.Second

// stale returns jobs.ErrFenced if a later attempt at the detector has taken over. An attempt
// without rows appends nothing, so it would not notice, and would take the session of its source on
// a broker from the later one again and again.
func (d *detection) stale(ctx context.Context) error {
	if time.Since(d.looked) < staleEvery {
		return nil
	}
	d.looked = time.Now()
	if lost, err := d.state.Fenced(ctx); err != nil || !lost {
		return nil //nolint:nilerr // an append tells what is wrong with the queue
	}
	return fmt.Errorf("detector %s: a later attempt has taken over: %w", d.spec.Name, jobs.ErrFenced)
}

// readPieces reads a source until it or ctx ends, and closes it. It hands over what it has when a
// piece is full, or before the source may wait, so that no row waits for the next one. Rows that it
// holds when ctx ends were not counted anywhere: the next attempt reads them again.
func readPieces(ctx context.Context, i int, r *source.LastingReader, pieces chan<- piece) {
	defer r.Close()
	p := piece{source: i}
	for {
		row, rejected, err := r.Next()
		switch {
		case err == nil:
			read := r.Arrived()
			if read.IsZero() {
				read = time.Now()
			}
			p.rows = append(p.rows, taken{row: row, rejected: rejected, at: r.Place(), read: read})
			if len(p.rows) < pieceRows {
				continue
			}
		case errors.Is(err, source.ErrPause):
			p.pause = true
		case errors.Is(err, io.EOF):
			p.pause, p.ended = true, true
		case ctx.Err() != nil:
			return
		default:
			p.err = err
		}
		select {
		case pieces <- p:
		case <-ctx.Done():
			return
		}
		if p.ended || p.err != nil {
			return
		}
		p = piece{source: i}
	}
}

// take adds the rows of a piece to the batch. The place of the source moves with each row, also
// with one that is rejected, so that the state that is stored with the batch is exactly behind its
// rows. Before a pause of the source, and before its error, it appends what there is.
func (d *detection) take(work context.Context, p piece) error {
	for _, t := range p.rows {
		group := p.source // of a source that is one
		if t.rejected == nil && d.evict != nil {
			for ok := false; !ok; {
				if group, ok = d.evict.Roster.Group(t.row.Key, t.row.Time); ok {
					break
				}
				// Every group has rows in this batch. After it the oldest can be taken.
				if err := d.flush(work); err != nil {
					return err
				}
			}
		}
		if t.rejected == nil && d.entities != nil {
			g, _, full, err := d.entities.Add(t.row.Key)
			if err != nil {
				return err
			}
			if group = g; full {
				t.rejected = &rows.Reject{
					Series: d.spec.Sources[p.source].Name, Row: t.row.Number,
					Reason: d.spec.Columns.TooMany(t.row.Key), Cause: rows.CauseEntities,
				}
			}
		}
		d.next.Sources[p.source] = t.at
		d.dirty = true
		if t.rejected != nil {
			d.reject(t.rejected)
			continue
		}
		d.next.Rows++
		if d.batch.Add(group, &t.row, t.read) {
			if err := d.flush(work); err != nil {
				return err
			}
		}
	}
	switch {
	case p.err != nil:
		if err := d.flush(work); err != nil {
			return err
		}
		return p.err
	case p.ended:
		d.log.Info("a source has ended", "source", d.spec.Sources[p.source].Name)
	}
	if p.pause {
		return d.flush(work)
	}
	return nil
}

// reject counts a row that cannot be used. The log of the job has the first one of each minute. The
// counts are part of the state, so a row that two attempts read is counted once.
func (d *detection) reject(r *rows.Reject) {
	d.next.Rejected++
	switch r.Cause {
	case rows.CauseKey:
		d.next.Keyless.WithoutKey++
	case rows.CauseEntities:
		d.next.Keyless.BeyondEntities++
	}
	d.rejected = r.Series + ": " + r.Place() + ": " + r.Reason
	d.log.sometimes("a row is rejected", "source", r.Series, "place", r.Place(), "reason", r.Reason)
}

// flush appends the batch with the state behind it, after the swaps of its entities. It waits while
// too many batches have no answer. Without rows it stores the state alone. After an error the batch
// may be stored or not: only the next attempt, which reads the log, knows.
func (d *detection) flush(work context.Context) error {
	if d.evict != nil {
		if err := d.move(work); err != nil {
			return err
		}
	}
	if !d.dirty {
		return nil
	}
	next := d.next
	next.Sources = append([]source.Place{}, d.next.Sources...)
	var err error
	if d.batch.Len() == 0 {
		err = d.state.Note(work, next)
	} else {
		err = d.append(work, next)
	}
	if err != nil {
		return err
	}
	d.dirty = false
	d.count()
	if d.stored++; d.stored < trimEvery {
		return nil
	}
	return d.trimJournals(work)
}

// append appends the batch, with the state behind the rows as its note, and empties it.
func (d *detection) append(work context.Context, next commitlog.Mark) error {
	parts, err := d.state.Groups.Split(&d.batch.Observations)
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := d.window.Room(work, p.Shard, d.state.End(p.Shard)); err != nil {
			return err
		}
	}
	if err := d.state.Commit(work, parts, next); err != nil {
		return err
	}
	d.noteAppended()
	d.batch.Reset()
	return nil
}

// trimJournals removes the documents that are before the last mark. Until then they are kept,
// because an attempt that continues reads from there.
func (d *detection) trimJournals(ctx context.Context) error {
	d.stored = 0
	for i, at := range d.state.Last.Sources {
		if err := source.TrimJournal(ctx, d.stream.log(d.journalShard(i), swarms.In), at); err != nil {
			return err
		}
	}
	return nil
}

// count publishes the counts of what was stored. They never go back: an attempt begins with those
// of the last mark.
func (d *detection) count() {
	var failures uint64
	unreachable := ""
	for i, r := range d.readers {
		failures += r.Failures()
		if err := r.Failure(); err != nil && unreachable == "" {
			unreachable = "source " + d.spec.Sources[i].Name + ": " + err.Error()
		}
	}
	d.mu.Lock()
	d.now.Rows, d.now.Rejected, d.now.Keyless = d.next.Rows, d.next.Rejected, Keyless(d.next.Keyless)
	d.now.Evicted, d.now.Returned = d.next.Evicted, d.next.Returned
	if d.evict != nil {
		d.now.Entities = d.evict.Roster.Len()
	}
	d.now.SourceFailures, d.now.Unreachable, d.now.LastReject = failures, unreachable, d.rejected
	d.mu.Unlock()
	d.report(false)
}
