package source

import (
	"context"
	"log/slog"
	"math"
	"os"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// LastingReader reads a source that may have no end, from a place on. One goroutine calls Next,
// Place and Close. Trim may be called by another one.
type LastingReader struct {
	r     *documentReader
	src   *patientFetcher
	at    feed.Place
	inDoc uint64 // rows of the open document that were returned
	skip  uint64 // rows of the first document to leave out
}

// OpenLasting opens a source at a place: number i of the job or detector called id. Its journal
// must have the document of the place. A system that cannot be reached is tried again until ctx
// ends. The caller closes the reader.
func (s Resources) OpenLasting(
	ctx context.Context, journal swarms.Log, id string, i int, src Series, columns rows.ColumnSpec, at feed.Place,
) (*LastingReader, error) {
	s.Endless = true
	f, err := s.fetcher(id, i, src, columns)
	if err != nil {
		return nil, err
	}
	if db, is := f.(*sqlFetcher); is && db.spec.Polls == 0 {
		db.limits.Polls = math.MaxInt
	}
	p := &patientFetcher{fetcher: f, name: src.Name, log: s.Logger}
	r, err := s.documents(ctx, journal, at.Entry, src, columns, p)
	if err != nil {
		return nil, err
	}
	r.number, r.exact = at.Number, true
	r.spec.Local.Restore(at.Local)
	return &LastingReader{r: r, src: p, at: at, skip: at.Rows}, nil
}

// Next returns the next row or reject. It returns ErrPause between two documents: the rows before
// it must go out before the source waits. io.EOF is the end of a source that has one.
func (r *LastingReader) Next() (rows.Row, *rows.Reject, error) {
	for {
		document := r.r.document
		before := r.r.number
		row, rejected, err := r.r.Next()
		if r.r.document != document {
			r.at = feed.Place{Entry: r.r.begun, Number: before, Local: r.r.local}
			r.inDoc = 0
		}
		if err != nil || rejected != nil && rejected.Row == 0 { // a file that was left out
			return row, rejected, err
		}
		r.inDoc++
		r.at.Rows = r.inDoc
		if r.inDoc <= r.skip && r.r.document == 1 {
			continue
		}
		return row, rejected, nil
	}
}

// Name returns the name of the source.
func (r *LastingReader) Name() string { return r.r.name }

// Place returns the place behind the last row that Next has returned.
func (r *LastingReader) Place() feed.Place { return r.at }

// Arrived returns when the first message of the open document came; the zero time if the source
// does not say it, or an earlier attempt has read the document.
func (r *LastingReader) Arrived() time.Time { return r.r.arrived }

// Failures returns the number of failed attempts to reach the source.
func (r *LastingReader) Failures() uint64 { return r.src.failures.Load() }

// Failure returns why the last attempt to reach the source has failed, until the next one begins,
// and otherwise nil.
func (r *LastingReader) Failure() error {
	if err := r.src.failure.Load(); err != nil {
		return *err
	}
	return nil
}

// Close ends the reading.
func (r *LastingReader) Close() error { return r.r.Close() }

// TrimJournal removes the documents of a journal before a place that is stored.
func TrimJournal(ctx context.Context, journal swarms.Log, at feed.Place) error {
	if at.Entry == 0 {
		return nil
	}
	return journal.Trim(ctx, at.Entry+1)
}

// patientFetcher repeats a fetch that failed for a cause that may pass, until the context ends.
type patientFetcher struct {
	fetcher
	name     string
	log      *slog.Logger
	failures atomic.Uint64
	failure  atomic.Pointer[error] // during the pause after an attempt that failed
}

// The pause between two attempts grows from firstPause to longestPause.
const (
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// fetch implements fetcher. A connection is closed before the next attempt, which makes a new one.
func (f *patientFetcher) fetch(ctx context.Context, at position, last string, doc *os.File) (position, error) {
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		f.failure.Store(nil) // an attempt that has reached its source may wait for its messages
		next, err := f.fetcher.fetch(ctx, at, last, doc)
		if err == nil || !jobs.Retryable(err) || ctx.Err() != nil {
			return next, err
		}
		f.failures.Add(1)
		f.failure.Store(&err)
		f.log.Warn("a source cannot be read: it is tried again", "source", f.name, "error", err, "pause", pause)
		f.reopen()
		if err := retry.Sleep(ctx, pause); err != nil {
			return at, err
		}
		if err := files.Rewind(doc); err != nil {
			return at, err
		}
	}
}
