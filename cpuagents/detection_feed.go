package cpuagents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
)

// taken is a row of a source, or a reject, and the place behind it.
type taken struct {
	row      rows.Row
	rejected *rows.Reject
	at       feed.Place
	read     time.Time
}

// piece is what the reader of a source hands over at a time.
type piece struct {
	source  int
	name    string // of what its rows are from
	rows    []taken
	at      feed.Place    // behind it
	pause   bool          // the next document may take a while
	settled chan struct{} // is closed when all rows have their decisions; nil if nobody waits for it
	ended   bool
	err     error
}

const pieceRows = 256

// trimEvery is the number of marks after which the inputs are trimmed.
const trimEvery = 64

// feed reads all sources at the same time, and appends their rows in batches. It returns nil when
// ctx ends with jobs.ErrFinish, or when all sources have ended with Ends.
//
// Each source has a goroutine that reads; the goroutine of feed alone changes the batch and the
// state behind it. The channel has no buffer, so a slow swarm or sink stops the reading, and with
// it the source or its broker. All readers have ended when feed returns.
func (d *detection) feed(ctx, work context.Context) (err error) {
	reading, stop := context.WithCancelCause(work)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(context.Cause(ctx)) })()
	var readers sync.WaitGroup
	defer readers.Wait()
	handing, unhand := context.WithCancel(work) // of pieces
	defer unhand()
	defer stop(nil)
	started := false
	defer func() {
		if !started { // else readPieces closes them
			d.closeReaders()
		}
	}()
	if err = d.openReaders(reading); err == nil {
		err = d.complete(work)
	}
	if err != nil {
		if errors.Is(context.Cause(reading), jobs.ErrFinish) {
			return nil // the next attempt completes the batch
		}
		return err
	}
	started = true
	pieces := make(chan piece)
	for i, r := range d.readers {
		readers.Go(func() { d.readPieces(reading, handing, i, r, pieces) })
	}
	over := make(chan struct{})
	go func() {
		readers.Wait()
		close(over)
	}()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	ended, finished := over, (<-chan struct{})(nil)
	for {
		select {
		case p := <-pieces:
			if err := d.take(work, p); err != nil {
				return err
			}
			continue
		case <-look.C:
			d.count()
			if err := d.stale(work); err != nil {
				return err
			}
			continue
		case <-ended: // a finish is awaited
			if ended, finished = nil, reading.Done(); !d.Ends && reading.Err() == nil {
				continue
			}
		case <-finished:
		case <-work.Done():
		}
		if cause := context.Cause(work); cause != nil {
			return cause
		}
		// What was read is decided. What a reader still has is read again by the next attempt.
		if err := d.flush(work); err != nil {
			return err
		}
		return d.trimInputs(work)
	}
}

// openReaders opens the sources behind the last batch, or before it if shards lack their parts.
func (d *detection) openReaders(ctx context.Context) error {
	at, last := d.next.Sources, d.state.Last
	again := len(d.state.Missing) > 0
	if again {
		at = append(slices.Clone(last.Before), make([]feed.Place, len(at))...)
	}
	for i, in := range d.Inputs {
		var to *feed.Place
		if again {
			to = &d.next.Sources[i]
		}
		r, err := in.Open(ctx, at[i], to)
		if errors.Is(err, ErrNotAgain) {
			d.log.Warn("rows are lost that the process before this one has read when it was killed: they cannot be "+
				"read again from this input", "shards", d.state.Missing)
			d.state.GiveUp()
			d.closeReaders()
			return d.openReaders(ctx)
		}
		if err != nil {
			return err
		}
		d.readers = append(d.readers, r)
	}
	return nil
}

func (d *detection) closeReaders() {
	for _, r := range d.readers {
		_ = r.Close()
	}
	d.readers = nil
}

// complete reads the rows of the last batch again, if some shards lack their part of it, and
// appends them. All sources are open at the places before the batch.
func (d *detection) complete(work context.Context) error {
	if len(d.state.Missing) == 0 {
		for i, r := range d.readers {
			if at := r.Place(); at != d.next.Sources[i] {
				// The first rows may be in a file with another name when the next attempt needs
				// them.
				d.next.Sources[i], d.dirty = at, true
			}
		}
		return d.flush(work)
	}
	for i, r := range d.readers {
		// Rows are counted, and not entries: a document that a kill has cut is in the journal twice, and
		// only one of its entries counts.
		to := d.state.Last.Sources[i]
		for at := r.Place(); at.Number+at.Rows < to.Number+to.Rows; at = r.Place() {
			row, rejected, err := r.Next()
			switch {
			case errors.Is(err, source.ErrPause):
				continue
			case errors.Is(err, io.EOF):
				return jobs.Errorf(jobs.CodeInternal, "source %s does not have its rows again up to %+v: it was "+
					"changed by another program: %s", r.Name(), to, feed.Cure)
			case err != nil:
				return err
			case rejected != nil:
				continue // it is counted
			}
			group, ok := i, true
			if d.Directory != nil { // a row without an entity is counted as a reject
				if group, ok, err = d.Directory.Number(row.Key, row.Time); err != nil {
					return err
				}
			}
			if ok && slices.Contains(d.state.Missing, d.state.Groups.ShardOf(group)) {
				d.batch.Add(group, &row, arrived(r)) // it is counted
			}
		}
	}
	parts, err := d.state.Groups.Split(&d.batch.Observations)
	if err != nil {
		return err
	}
	d.log.Info("rows of the last batch are sent again to the shards that lack them", "rows", d.batch.Len(),
		"shards", len(d.state.Missing))
	if err := d.state.Complete(work, parts); err != nil {
		return err
	}
	d.noteAppended()
	d.batch.Reset()
	return nil
}

func arrived(r InputReader) time.Time {
	if at := r.Arrived(); !at.IsZero() {
		return at
	}
	return time.Now()
}

// staleEvery is the time between two checks for a later attempt.
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
	return fmt.Errorf("detector %s: a later attempt has taken over: %w", d.Name, jobs.ErrFenced)
}

// readPieces reads a source until it or reading ends, and closes it. It hands over what it has when
// a piece is full, or before the source may wait, so that no row waits for the next one. Rows that
// it holds when reading ends were not counted anywhere: the next attempt reads them again.
func (d *detection) readPieces(reading, handing context.Context, i int, r InputReader, pieces chan<- piece) {
	defer r.Close()
	p := piece{source: i}
	for d.Ends || reading.Err() == nil {
		row, rejected, err := r.Next()
		switch {
		case err == nil:
			p.rows = append(p.rows, taken{row: row, rejected: rejected, at: r.Place(), read: arrived(r)})
			if len(p.rows) < pieceRows {
				continue
			}
		case errors.Is(err, source.ErrPause):
			if p.pause = true; errors.Is(err, ErrSettle) {
				p.settled = make(chan struct{})
			}
		case errors.Is(err, io.EOF):
			p.pause, p.ended = true, true
		case reading.Err() != nil:
			return
		default:
			p.err = err
		}
		p.name, p.at = r.Name(), r.Place()
		select {
		case pieces <- p:
		case <-handing.Done():
			return
		}
		if p.ended || p.err != nil {
			return
		}
		if p.settled != nil {
			select {
			case <-p.settled:
			case <-handing.Done():
				return
			}
		}
		p = piece{source: i}
	}
}

// take adds the rows of a piece to the batch. The place of the source moves with each row, also
// with one that is rejected, so that the state that is stored with the batch is exactly behind its
// rows. Before a pause of the source, and before its error, it appends what there is.
func (d *detection) take(work context.Context, p piece) error {
	for i := range p.rows {
		t := &p.rows[i]
		group := p.source // of a source that is one
		if t.rejected == nil && d.Directory != nil {
			var ok bool
			var err error
			if group, ok, err = d.number(work, &t.row); err != nil {
				return err
			}
			if !ok {
				t.rejected = &rows.Reject{
					Series: p.name, Row: t.row.Number, Reason: d.Columns.TooMany(t.row.Key), Cause: rows.CauseEntities,
				}
			}
		}
		d.next.Sources[p.source] = t.at
		d.dirty = true
		if t.rejected != nil {
			if err := d.reject(t.rejected); err != nil {
				return err
			}
			continue
		}
		d.next.Rows++
		if d.batch.Add(group, &t.row, t.read) {
			if err := d.flush(work); err != nil {
				return err
			}
		}
	}
	d.next.Sources[p.source] = p.at
	if p.pause || p.err != nil {
		if err := d.flush(work); err != nil {
			return err
		}
	}
	switch {
	case p.err != nil:
		return p.err
	case p.ended:
		d.log.Info("a source has ended", "source", p.name)
	}
	if p.settled != nil {
		if err := d.window.All(work, d.state.After); err != nil {
			return err
		}
		close(p.settled)
	}
	if p.pause && d.Snapshot != nil && d.fresh >= d.SnapshotRows {
		return d.snapshot(work)
	}
	return nil
}

// number returns the number of the entity of a row, and false if there are too many entities.
func (d *detection) number(work context.Context, row *rows.Row) (i int, ok bool, err error) {
	for {
		i, ok, err = d.Directory.Number(row.Key, row.Time)
		if ok || err != nil || d.evictions() == nil {
			return i, ok, err
		}
		// Every group has rows in this batch. After it the oldest can be taken.
		if err := d.flush(work); err != nil {
			return 0, false, err
		}
	}
}

// reject counts a row that cannot be used. The log of the job has the first one of each minute. The
// counts are part of the state, so a row that two attempts read is counted once.
func (d *detection) reject(r *rows.Reject) error {
	d.next.Rejected++
	d.next.Keyless.Count(r)
	d.mu.Lock()
	d.rejected = r.Series + ": " + r.Place() + ": " + r.Reason
	d.mu.Unlock()
	d.log.sometimes("a row is rejected", "source", r.Series, "place", r.Place(), "reason", r.Reason)
	if d.Rejected != nil {
		return d.Rejected(r)
	}
	return nil
}

// flush appends the batch with the state behind it, after the swaps of its entities. It waits while
// too many batches have no answer. Without rows it stores the state alone. After an error the batch
// may be stored or not: only the next attempt, which reads the log, knows.
func (d *detection) flush(work context.Context) error {
	if v := d.evictions(); v != nil {
		evicted, returned, err := v.Move(work)
		d.next.Evicted += evicted
		d.next.Returned += returned
		d.Metrics.moved(evicted, returned)
		if d.noteAppended(); err != nil {
			return err
		}
	}
	if !d.dirty {
		return nil
	}
	next := d.next
	next.Sources = append([]feed.Place{}, d.next.Sources...)
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
	return d.trimInputs(work)
}

// append appends the batch, with the state behind the rows as its note, and empties it.
func (d *detection) append(work context.Context, next feed.Mark) error {
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
	d.fresh += uint64(d.batch.Len())
	d.batch.Reset()
	return nil
}

// noteAppended tells the goroutine that collects which answers are due.
func (d *detection) noteAppended() {
	d.mu.Lock()
	d.due = slices.Clone(d.state.After)
	d.mu.Unlock()
}

// trimInputs removes what is before the last mark. Until then it is kept, because an attempt that
// continues reads from there.
func (d *detection) trimInputs(ctx context.Context) error {
	d.stored = 0
	for i, at := range d.state.Last.Sources {
		if i == len(d.Inputs) {
			break
		}
		if err := d.Inputs[i].Trim(ctx, at); err != nil {
			return err
		}
	}
	return nil
}

// count publishes the counts of what was stored. They never go back: an attempt begins with the
// counts of the last mark.
func (d *detection) count() {
	var failures uint64
	unreachable := ""
	for _, r := range d.readers {
		failures += r.Failures()
		if err := r.Failure(); err != nil && unreachable == "" {
			unreachable = "source " + r.Name() + ": " + err.Error()
		}
	}
	d.mu.Lock()
	d.now.Rows, d.now.Rejected, d.now.Keyless = d.next.Rows, d.next.Rejected, d.next.Keyless
	d.now.Evicted, d.now.Returned = d.next.Evicted, d.next.Returned
	if d.Directory != nil {
		d.now.Entities = d.Directory.Len()
	}
	d.now.SourceFailures, d.now.Unreachable, d.now.LastReject = failures, unreachable, d.rejected
	d.mu.Unlock()
	d.report(false)
}
