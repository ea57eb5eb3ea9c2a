package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// tailInput is the input of a detector: a stream, a file, or a file that grows with its successors.
type tailInput struct {
	o       *detectOptions
	csv     dialect.CSV
	columns rows.ColumnSpec

	opened bool       // it was opened by this process
	order  rows.Order // of the rows of this process
	early  uint64     // rows of this process with numbers for timestamps that mean times before 1990
}

// Open implements cpuagents.Input. A stream, and a file that is gone, cannot be read again.
func (t *tailInput) Open(ctx context.Context, at feed.Place, again *feed.Place) (cpuagents.InputReader, error) {
	t.opened = true
	begin, err := positionOf(at)
	if err != nil {
		return nil, err
	}
	var to position
	if again != nil {
		if to, err = positionOf(*again); err != nil {
			return nil, err
		}
		if begin.File == (fileMark{}) {
			begin.File = to.File
		}
	}
	in, err := openInput(ctx, t.o, t.csv, t.columns.Timestamp, begin)
	if err != nil {
		return nil, err
	}
	if again != nil && (in.file == nil || !in.found && !to.File.in(in.file, in.id)) {
		in.close()
		return nil, cpuagents.ErrNotAgain
	}
	r := &tailReader{t: t, ctx: ctx, in: in, columns: t.columns, at: at, next: 1, number: at.Number + at.Rows}
	r.columns.Local = rows.NewLocalTimes(t.columns)
	if in.found {
		r.columns.Local.Restore(in.at.Local)
		r.skip, r.records, r.number = at.Rows, in.at.Records-at.Rows, at.Number
	}
	if begin == (position{}) && in.path != "" && in.at != (position{}) {
		if r.at, err = placeOf(in.at, 0); err != nil {
			in.close()
			return nil, err
		}
	}
	return r, nil
}

// Trim implements cpuagents.Input.
func (t *tailInput) Trim(context.Context, feed.Place) error { return nil }

// tailReader reads a tailInput. A document is what there is when the rows before it have their
// decisions, so a row that comes alone waits for nothing, and batches are as large as the swarm and
// the disk need to keep up.
type tailReader struct {
	t       *tailInput
	ctx     context.Context //nolint:containedctx // Next has none, and the reader lives as long as the context
	in      *input
	columns rows.ColumnSpec
	next    uint64 // number of the next document in its file
	skip    uint64 // records to leave out
	records uint64 // of the file that were read
	number  uint64 // of all records before the open document

	at      feed.Place
	doc     document
	rows    rows.Reader // of doc; nil: none is open
	arrived clock
	read    time.Time // of the last row
}

// Next implements cpuagents.InputReader.
func (r *tailReader) Next() (rows.Row, *rows.Reject, error) {
	for {
		if r.rows == nil {
			if err := r.open(); err != nil {
				return rows.Row{}, nil, err
			}
		}
		row, rejected, err := r.rows.Next()
		if errors.Is(err, io.EOF) {
			return rows.Row{}, nil, r.end()
		}
		if err != nil {
			return rows.Row{}, nil, err
		}
		r.read = r.arrived.next()
		r.records++
		r.at.Rows++
		if r.skip > 0 {
			r.skip--
			continue
		}
		if rejected != nil {
			rejected.Row = r.records
			return row, rejected, nil
		}
		row.Number = r.records
		r.t.order.Note(&row)
		if rows.Early(&row) {
			r.t.early++
		}
		return row, nil, nil
	}
}

func (r *tailReader) open() error {
	for {
		doc, err := r.in.next(r.ctx, &r.next)
		if err != nil {
			return err
		}
		if doc.first {
			r.records = 0
		}
		if doc.empty() {
			continue
		}
		opened, err := rows.OpenText(doc.name, io.NopCloser(bytes.NewReader(doc.text)), doc.format, r.columns)
		if err != nil {
			return err
		}
		r.rows, r.doc, r.arrived = opened, doc, clock{text: doc.text, arrivals: doc.arrivals}
		if doc.header {
			r.arrived.next()
		}
		r.at, err = r.place(doc.begin)
		return err
	}
}

func (r *tailReader) place(at position) (feed.Place, error) {
	at.Skip, at.Records, at.Local = 0, r.records, r.columns.Local.State()
	return placeOf(at, r.number)
}

// end closes the document, and returns what follows it.
func (r *tailReader) end() (err error) {
	_ = r.rows.Close()
	r.rows = nil
	n := r.at.Rows
	r.number += n
	if r.at, err = r.place(r.doc.end); err != nil {
		return err
	}
	if n < batch.MaxRows { // the input has fewer rows than fit into a batch
		return cpuagents.ErrSettle
	}
	return source.ErrPause
}

// Name implements cpuagents.InputReader.
func (r *tailReader) Name() string { return r.doc.name }

// Place implements cpuagents.InputReader.
func (r *tailReader) Place() feed.Place { return r.at }

// Arrived implements cpuagents.InputReader.
func (r *tailReader) Arrived() time.Time { return r.read }

// Failures implements cpuagents.InputReader.
func (r *tailReader) Failures() uint64 { return 0 }

// Failure implements cpuagents.InputReader.
func (r *tailReader) Failure() error { return nil }

// Close implements cpuagents.InputReader.
func (r *tailReader) Close() error {
	if r.rows != nil {
		_ = r.rows.Close()
	}
	r.in.close()
	return nil
}

// placeOf returns a position without Skip as the place behind a number of records of all files.
func placeOf(at position, number uint64) (feed.Place, error) {
	text, err := json.Marshal(at)
	if err != nil {
		return feed.Place{}, fmt.Errorf("encode a position: %w", err)
	}
	return feed.Place{Document: feed.Document(text), Number: number}, nil
}

func positionOf(place feed.Place) (at position, err error) {
	if place.Document == "" {
		return at, nil
	}
	if err := json.Unmarshal([]byte(place.Document), &at); err != nil {
		return at, fmt.Errorf("the position in the input: %w: %w: name another --data-dir", statelog.ErrDamaged, err)
	}
	at.Records += place.Rows - uint64(at.Skip) // earlier programs have stored the records with Skip
	at.Skip = int(place.Rows)
	return at, nil
}
