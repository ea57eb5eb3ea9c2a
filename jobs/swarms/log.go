package swarms

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/jobs"
)

// Log is one ordered log of a shard. Any number of processes may read it. A writer says which entry
// it appends to, so the entries of two writers never mix. The methods may be called from several
// goroutines.
type Log interface {
	// Create makes the log unless it exists, with the consistency of its swarm if that is given. It
	// fails with jobs.CodeInvalid if the server cannot provide the consistency.
	Create(ctx context.Context, of ...Consistency) error
	// Delete removes the log with all entries. It returns nil if there is no such log.
	Delete(ctx context.Context) error
	// Append adds entries in their order, the first one right after entry number after (0 for an
	// empty log), and returns when all are stored. It fails with jobs.ErrFenced if another writer
	// has appended since. After any error the first few entries may be stored, but never an entry
	// without the entries before it. The same call may be repeated after jobs.ErrUnavailable:
	// entries that were stored are found and not stored twice. The log does not keep the slices. An
	// entry is stored with its own Trace, or with the trace of ctx if it has none.
	Append(ctx context.Context, after uint64, entries ...Entry) error
	// Last returns the last entry, or one with Seq 0 if the log is empty. It fails with
	// jobs.ErrNotFound if there is no such log. In a cluster the entry may be older than one that a
	// Reader has returned or an Append has stored before an election: the leader answers with the
	// entries that it has applied, and a replica may be ahead of it for a moment. A caller that
	// concludes something from a log that is too short must ask again for some seconds.
	Last(ctx context.Context) (Entry, error)
	// Read starts at entry number from (the first entry is 1), and continues with entries that are
	// appended later. The caller closes the reader.
	Read(ctx context.Context, from uint64) (Reader, error)
	// Trim removes the entries before number first.
	Trim(ctx context.Context, first uint64) error
}

// FindAnswer returns the answer to entry ref among the entries first to last of a log of answers,
// which are in the order of the entries that they answer. It calls at for some of them. It fails
// with jobs.ErrNotFound if there is no answer, and with an error of at.
func FindAnswer(ref, first, last uint64, at func(seq uint64) (Entry, error)) (e Entry, err error) {
	for first <= last {
		middle := first + (last-first)/2
		if e, err = at(middle); err != nil {
			return e, err
		}
		switch {
		case e.Ref == ref:
			return e, nil
		case e.Ref < ref:
			first = middle + 1
		default:
			last = middle - 1
		}
	}
	return Entry{}, fmt.Errorf("the answer to entry %d: %w", ref, jobs.ErrNotFound)
}

// Reader reads a log in order. It is for one goroutine.
type Reader interface {
	// Next waits for the next entry. The caller owns its Data. It fails with jobs.ErrNotFound when
	// the log was deleted, with a *TrimmedError if the first entry was removed before it was read, and
	// with the cause of ctx when ctx ends.
	Next(ctx context.Context) (Entry, error)
	// Close ends the reading. A second call does nothing.
	Close()
}

// Direction tells the two logs of a shard apart.
type Direction string

// In is the log of entries, such as observations. Out is the log of answers, such as decisions.
const (
	In  Direction = "in"
	Out Direction = "out"
)

// Wakes reports logs to which another process has appended, to readers without a consumer. A report
// is a hint: the log may be unchanged. The methods may be called from several goroutines.
type Wakes interface {
	// Add watches a log under a key until Next has returned the key, or Remove is called. If the
	// last entry of the log is not number last, Next returns the key at once.
	Add(ctx context.Context, key string, l Log, last uint64) error
	// Remove ends the watch of a key. It does nothing for a key that is not watched.
	Remove(key string)
	// Next waits until a log has a new last entry or is gone, and returns its key. It fails with
	// the cause of ctx.
	Next(ctx context.Context) (key string, err error)
	// Close ends all watches. A second call does nothing.
	Close()
}
