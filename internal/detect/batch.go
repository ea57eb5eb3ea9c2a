package detect

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// feed reads the input until it or ctx ends.
func (d *detector) feed(ctx, work context.Context) error {
	at, err := positionOf(d.state.Last.Sources)
	if err != nil {
		return err
	}
	if err := d.again(at); err != nil {
		return err
	}
	begin := at
	if d.redo != nil {
		if begin = d.redo.from; begin.File == (fileMark{}) {
			begin.File = d.redo.to.File
		}
	}
	in, err := openInput(ctx, d.o, d.spec.CSV, d.columns.Timestamp, begin)
	if err == nil && d.drop(in) {
		in.close()
		in, err = openInput(ctx, d.o, d.spec.CSV, d.columns.Timestamp, at)
	}
	if err != nil {
		return err
	}
	defer in.close()
	if at == (position{}) && in.path != "" && in.at != (position{}) {
		// The first rows may be in a file with another name when the next process looks for them.
		m := d.state.Last
		if m.Sources, err = placesOf(in.at); err != nil {
			return err
		}
		if err := d.state.Note(work, m); err != nil {
			return err
		}
	}
	d.batch = feed.NewBatch(len(d.spec.Features), batch.MaxRows)
	d.columns.Local = rows.NewLocalTimes(d.columns)
	skip, records := 0, uint64(0)
	if in.found {
		d.columns.Local.Restore(in.at.Local)
		skip, records = in.at.Skip, in.at.Records-uint64(in.at.Skip)
	}
	for n := uint64(1); ; {
		// Rows that come meanwhile are the next batch. So batches are as large as the swarm and the
		// disk need to keep up, and a row that comes alone waits for nothing.
		if d.slow {
			if err := d.awaitAll(work); err != nil {
				return err
			}
		}
		doc, err := in.next(ctx, &n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if doc.first {
			records = 0
		}
		if !doc.empty() {
			if err := d.document(work, doc, &skip, &records); err != nil {
				return err
			}
		}
		if d.fresh >= snapshotRows {
			if err := d.awaitAll(work); err != nil {
				return err
			}
			if err := d.snapshot(work); err != nil {
				return err
			}
		}
	}
}

// document feeds the rows of a document. skip is the number of records to leave out, and records
// counts those of the file.
func (d *detector) document(ctx context.Context, doc document, skip *int, records *uint64) error {
	r, err := rows.OpenText(doc.name, io.NopCloser(bytes.NewReader(doc.text)), doc.format, d.columns)
	if err != nil {
		return err
	}
	defer r.Close()
	arrived := clock{text: doc.text, arrivals: doc.arrivals}
	if doc.header {
		arrived.next()
	}
	at := doc.begin
	at.Skip, at.Local = 0, d.columns.Local.State()
	for {
		row, rejected, err := r.Next()
		if errors.Is(err, io.EOF) {
			doc.end.Records, doc.end.Local = *records, d.columns.Local.State()
			d.slow = at.Skip < batch.MaxRows
			return d.flush(ctx, doc.end)
		}
		if err != nil {
			return err
		}
		read := arrived.next()
		before := at
		*records++
		at.Skip++
		at.Records = *records
		if *skip > 0 {
			*skip--
			continue
		}
		group := 0
		if rejected == nil && len(d.columns.Key) > 0 {
			var ok bool
			if group, ok, err = d.entity(ctx, &row, before); err != nil {
				return err
			}
			if !ok {
				rejected = &rows.Reject{
					Series: doc.name, Reason: d.columns.TooMany(row.Key), Cause: rows.CauseEntities,
				}
			}
		}
		if d.redo != nil {
			row.Number = *records
			if err := d.repeat(ctx, group, &row, rejected, read, at); err != nil {
				return err
			}
			continue
		}
		if rejected != nil {
			rejected.Row = *records
			if err := d.reject(rejected); err != nil {
				return err
			}
			continue
		}
		row.Number = *records
		d.order.Note(&row)
		if rows.Early(&row) {
			d.early++
		}
		if d.batch.Add(group, &row, read) {
			if err := d.flush(ctx, at); err != nil {
				return err
			}
		}
	}
}

// reject counts and notes a row that cannot be used.
func (d *detector) reject(r *rows.Reject) error {
	d.counts.rejected++
	d.tally.Reject(r)
	switch r.Cause {
	case rows.CauseKey:
		d.counts.withoutKey++
	case rows.CauseEntities:
		d.counts.beyond++
	}
	if d.first == nil {
		d.first = r
	}
	if d.rejects == nil {
		return nil
	}
	if err := d.rejects.Encode(r); err != nil {
		return fmt.Errorf("detect: --rejects: %w", err)
	}
	return nil
}

// flush appends the batch, behind which the input continues at a position. An empty batch is not
// appended.
func (d *detector) flush(ctx context.Context, at position) error {
	if d.redo != nil {
		return nil // the batch goes on
	}
	if d.evict != nil {
		if _, _, err := d.evict.Move(ctx); err != nil {
			return err
		}
	}
	n := d.batch.Len()
	if n == 0 {
		return nil
	}
	parts, err := d.parts(ctx)
	if err != nil {
		return err
	}
	m := d.state.Last
	m.Rows += uint64(n)
	if m.Sources, err = placesOf(at); err != nil {
		return err
	}
	if err := d.state.Commit(ctx, parts, m); err != nil {
		return err
	}
	d.sent(n)
	return nil
}

// sent empties the batch, which is stored.
func (d *detector) sent(n int) {
	d.counts.rows += uint64(n)
	d.tally.Rows += uint64(n)
	d.fresh += uint64(n)
	d.batch.Reset()
}
