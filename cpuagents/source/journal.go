package source

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// The kinds of entry of a journal. A document is an entry "begin", its pieces, and a document entry
// with the position after it.
const (
	entryBegin    = "begin"
	entryPiece    = "piece"
	entryDocument = "document"
)

// journalPiece bounds an entry in bytes. It is half of what a NATS server accepts by default.
const journalPiece = 512 << 10

// position is the position of a remote source after a document.
type position struct {
	// State belongs to the fetcher: a cursor, a tag or a count.
	State json.RawMessage `json:"state,omitempty"`
	// Format of the document; empty when there is none, only a new position.
	Format rows.Format `json:"format,omitempty"`
	// Name of the document in its source, if it has one.
	Name string `json:"name,omitempty"`
	// Skipped are the documents before it that were not read.
	Skipped []skipped `json:"skipped,omitempty"`
	// Exact: the source returns no row twice, so rows that go back in time are rejected. Otherwise
	// such rows were read already, and are left out.
	Exact bool `json:"exact,omitempty"`
	// Done: no document follows.
	Done bool `json:"done,omitempty"`
}

// decode decodes the state of a fetcher, if there is one. where names the source in errors.
func (p position) decode(where string, st any) error {
	if len(p.State) == 0 {
		return nil
	}
	if err := json.Unmarshal(p.State, st); err != nil {
		return fmt.Errorf("position of %s: %w", where, err)
	}
	return nil
}

// with returns the position with a state of its fetcher.
func (p position) with(where string, st any) (_ position, err error) {
	if p.State, err = json.Marshal(st); err != nil {
		return position{}, fmt.Errorf("position of %s: %w", where, err)
	}
	return p, nil
}

type skipped struct {
	File   string `json:"file"`
	Reason string `json:"reason"`
}

// journal keeps the documents of a remote source on the queue, in the order in which they were
// read. A later attempt of the job reads the same documents, whatever the source returns then, and
// continues after them. Every entry names the previous entry, so one of two concurrent attempts
// fails with jobs.ErrFenced. One goroutine uses it.
type journal struct {
	log    swarms.Log
	after  uint64        // last entry
	read   uint64        // entry that was read last
	reader swarms.Reader // nil: everything has been read again
	number uint64        // of the last document
}

// openJournal creates the log of a journal if it is missing, and begins to read it after an entry.
// The caller closes the journal.
func openJournal(ctx context.Context, log swarms.Log, after uint64) (*journal, error) {
	if err := log.Create(ctx); err != nil {
		return nil, err
	}
	last, err := log.Last(ctx)
	if err != nil {
		return nil, err
	}
	j := &journal{log: log, after: last.Seq, read: after}
	if last.Seq > after {
		if j.reader, err = log.Read(ctx, after+1); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// close ends the reading. The log stays until the swarm of the job is removed.
func (j *journal) close() {
	if j.reader != nil {
		j.reader.Close()
		j.reader = nil
	}
}

// place returns the last entry that was read or written.
func (j *journal) place() uint64 {
	if j.reader == nil {
		return j.after
	}
	return j.read
}

// next writes the next document that an earlier attempt has stored into doc. If there is none, ok
// is false.
func (j *journal) next(ctx context.Context, doc *os.File) (at position, ok bool, err error) {
	for j.reader != nil {
		e, err := j.reader.Next(ctx)
		if err != nil {
			return at, false, err
		}
		j.read = e.Seq
		switch e.Kind {
		case entryBegin: // what an attempt has left behind that ended before its document did is dropped
			err = files.Rewind(doc)
		case entryPiece:
			if _, werr := doc.Write(e.Data); werr != nil {
				err = files.ScratchError("write", "a temporary file", werr)
			}
		case entryDocument:
			j.number = e.Ref
			ok = true
			if jerr := json.Unmarshal(e.Data, &at); jerr != nil {
				err = fmt.Errorf("journal entry %d: %w", e.Seq, jerr)
			}
		}
		if e.Seq >= j.after {
			j.close()
		}
		if err != nil || ok {
			return at, ok, err
		}
	}
	return at, false, files.Rewind(doc)
}

// add stores a document and the position after it. When it returns, the document is stored as a
// whole, or not at all. After an error the journal must not be used any more; a new attempt drops
// the pieces without an end.
func (j *journal) add(ctx context.Context, doc *os.File, at position) error {
	if _, err := doc.Seek(0, io.SeekStart); err != nil {
		return files.ScratchError("read back", "a temporary file", err)
	}
	j.number++
	put := func(kind string, data []byte) error {
		if err := j.log.Append(ctx, j.after, swarms.Entry{Kind: kind, Ref: j.number, Data: data}); err != nil {
			return fmt.Errorf("store document %d: %w", j.number, err)
		}
		j.after++
		return nil
	}
	if err := put(entryBegin, nil); err != nil {
		return err
	}
	for piece := make([]byte, journalPiece); ; {
		n, err := io.ReadFull(doc, piece)
		if n > 0 {
			if err := put(entryPiece, append([]byte{}, piece[:n]...)); err != nil {
				return err
			}
		}
		if n < len(piece) {
			break
		}
		if err != nil {
			return files.ScratchError("read back", "a temporary file", err)
		}
	}
	data, err := json.Marshal(at)
	if err != nil {
		return fmt.Errorf("store document %d: %w", j.number, err)
	}
	return put(entryDocument, data)
}
