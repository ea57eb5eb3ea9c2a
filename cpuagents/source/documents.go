package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// ErrPause is returned by the reader of a remote source between two documents. The rows before it
// must go out before the source waits. It comes at the same place in every attempt, so that every
// attempt makes the same batches.
var ErrPause = errors.New("the next document may take a while")

// fetcher reads the documents of a remote source, one after another. One goroutine uses it, and
// calls close once. No state of a fetcher matters after a crash: everything is in the position.
type fetcher interface {
	// fetch writes the document after position at into doc, which is empty, and returns the
	// position after it. It waits while there is none. The parameter last is the timestamp of the
	// last valid row, as written. It retries by itself, and an error after that has its class, and
	// is marked with jobs.Retry if the same call may succeed later.
	fetch(ctx context.Context, at position, last string, doc *os.File) (position, error)
	// replay is called for every document that an earlier attempt has stored, in order, before fetch.
	replay(at position) error
	// stored is called when the journal has the document that fetch returned.
	stored(ctx context.Context, at position)
	// arrived returns when the first message of the last document came; the zero time if it is not
	// known.
	arrived() time.Time
	// reopen closes a connection after a failure. The next fetch makes a new one.
	reopen()
	close() error
}

// passive is the part of a fetcher that only fetches.
type passive struct{}

func (passive) replay(position) error            { return nil }
func (passive) stored(context.Context, position) {}
func (passive) arrived() time.Time               { return time.Time{} }
func (passive) reopen()                          {}

// documentReader reads the rows of a remote source document by document. If the documents are not
// exact, a row that is no later than the last row of the documents before was read already and is
// left out. One goroutine uses it. It owns the journal and the fetcher, and closes them.
type documentReader struct {
	// ctx ends the waiting of Next, which implements rows.Reader and takes no context.
	ctx     context.Context //nolint:containedctx // the reader lives no longer than the attempt
	name    string
	spec    rows.ColumnSpec
	files   *files.Files
	journal *journal
	src     fetcher
	// at is the position after the document that is open.
	at      position
	skipped []skipped   // to be told of
	rows    rows.Reader // of the document that is open
	// number is the number of the last row over all documents, rejects included.
	number   uint64
	document uint64    // that is open
	begun    uint64    // the last entry of the journal before it
	arrived  time.Time // of the first message of the open document; zero if it is not known
	local    string    // what spec.Local knew before the open document
	exact    bool      // all documents are exact, whatever their positions say
	last     rows.Row  // the last valid one
	any      bool
	until    int64 // time of the last row of earlier documents
	later    bool  // there are such rows
	// entities has the time of the last row of each entity, for documents that are not exact.
	entities map[string]entityTimes
}

// entityTimes are the times of an entity: of the last row of earlier documents, and of the last row
// of all documents, which has the number of its document.
type entityTimes struct {
	until, last int64
	later       bool
	document    uint64
}

// repeats reports whether a row with a key was read already in an earlier document. It returns a
// problem for a row of an entity beyond the number that is allowed.
func (r *documentReader) repeats(out rows.Row) (is bool, problem string) {
	e, known := r.entities[out.Key]
	if !known {
		if len(r.entities) >= r.spec.Entities() {
			return false, r.spec.TooMany(out.Key)
		}
		if r.entities == nil {
			r.entities = map[string]entityTimes{}
		}
	}
	if known && e.document != r.document {
		e.until, e.later, e.document = e.last, true, r.document
	}
	if e.later && out.Time <= e.until {
		return true, ""
	}
	e.last, e.document = out.Time, r.document
	r.entities[out.Key] = e
	return false, ""
}

func (r *documentReader) Close() error {
	var err error
	if r.rows != nil {
		err = r.rows.Close()
		r.rows = nil
	}
	r.journal.close()
	return errors.Join(err, r.src.close())
}

// Next implements rows.Reader. Between documents it returns ErrPause, so that the caller sends the
// rows that it holds before Next waits for the next document.
func (r *documentReader) Next() (rows.Row, *rows.Reject, error) {
	for {
		if len(r.skipped) > 0 {
			s := r.skipped[0]
			r.skipped = r.skipped[1:]
			return rows.Row{}, &rows.Reject{Series: r.name, File: s.File, Reason: s.Reason}, nil
		}
		if r.rows == nil {
			if r.at.Done {
				return rows.Row{}, nil, io.EOF
			}
			if err := r.open(); err != nil {
				return rows.Row{}, nil, err
			}
			continue
		}
		out, rejected, err := r.rows.Next()
		switch {
		case errors.Is(err, io.EOF):
			err := r.rows.Close()
			r.rows, r.until, r.later = nil, r.last.Time, r.any
			if err == nil && !r.at.Done {
				err = ErrPause
			}
			if err != nil {
				return rows.Row{}, nil, err
			}
		case err != nil:
			return rows.Row{}, nil, err
		case rejected != nil:
			r.number++
			rejected.Series, rejected.File, rejected.Row = r.name, r.at.Name, r.number
			return rows.Row{}, rejected, nil
		case len(r.spec.Key) > 0:
			if !r.at.Exact {
				again, problem := r.repeats(out)
				if again {
					continue
				}
				if problem != "" {
					r.number++
					return rows.Row{}, &rows.Reject{
						Series: r.name, File: r.at.Name, Row: r.number, Reason: problem, Cause: rows.CauseEntities,
					}, nil
				}
			}
			r.number++
			out.Number = r.number
			r.last, r.any = out, true
			return out, nil, nil
		case r.later && r.at.Exact && out.Time < r.until && !r.spec.AnyOrder:
			r.number++
			problem := fmt.Sprintf(
				"its timestamp %s goes back behind the documents before it", access.Quote(out.Timestamp),
			)
			return rows.Row{}, &rows.Reject{Series: r.name, File: r.at.Name, Row: r.number, Reason: problem}, nil
		case r.later && !r.at.Exact && out.Time <= r.until:
		default:
			r.number++
			out.Number = r.number
			r.last, r.any = out, true
			return out, nil, nil
		}
	}
}

// open opens the next document: one that an earlier attempt has stored, or one of the source, which
// it stores first.
func (r *documentReader) open() (err error) {
	doc, err := r.files.Spool()
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = doc.Close()
		}
	}()
	begun := r.journal.place()
	at, ok, err := r.journal.next(r.ctx, doc)
	if err != nil {
		return err
	}
	if !ok {
		begun = r.journal.after
	}
	r.arrived = time.Time{}
	if ok {
		if err := r.src.replay(at); err != nil {
			return err
		}
	}
	if !ok {
		if at, err = r.src.fetch(r.ctx, r.at, r.last.Timestamp, doc); err == nil {
			err = r.journal.add(r.ctx, doc, at)
		}
		r.arrived = r.src.arrived()
		if err == nil {
			r.src.stored(r.ctx, at)
		}
		// A fetch that was interrupted returns whatever the library makes of it; the cause tells
		// why.
		if cause := context.Cause(r.ctx); err != nil && cause != nil {
			err = cause
		}
		if err != nil {
			return err
		}
	}
	at.Exact = at.Exact || r.exact
	r.document++
	r.begun = begun
	r.at, r.skipped = at, at.Skipped
	if size, err := doc.Seek(0, io.SeekEnd); err != nil {
		return files.ScratchError("read back", "a temporary file", err)
	} else if size == 0 || at.Format == "" { // nothing new
		return doc.Close()
	}
	if _, err = doc.Seek(0, io.SeekStart); err != nil {
		return files.ScratchError("read back", "a temporary file", err)
	}
	name := r.name
	if at.Name != "" {
		name += ": " + access.Quote(at.Name)
	}
	spec := r.spec
	r.local = spec.Local.State()
	if !at.Exact {
		spec.Local = nil // its rows may repeat the document before
	}
	r.rows, err = r.files.Read(r.ctx, name, doc, at.Format, spec)
	return err
}
