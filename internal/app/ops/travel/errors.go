package travel

import (
	"errors"
	"fmt"
)

// Sentinels of this package. Errors that wrap them name the shard, and what to do.
var (
	// ErrTrimmed: the log does not have the entries that a replay needs, and no snapshot that this
	// process reaches replaces them.
	ErrTrimmed = errors.New("the log was trimmed")
	// ErrTooLarge: the pages of the shard are more than Options.MaxBytes.
	ErrTooLarge = errors.New("the shard is too large to be replayed here")
	// ErrTooFar: between the nearest start and the entry are more entries than Options.MaxEntries.
	ErrTooFar = errors.New("the replay is too long")
	// ErrClosed: the Replayer was closed.
	ErrClosed = errors.New("the replayer is closed")
)

// Unfinished is the error of a replay that was not complete within its time. The Replayer has kept
// the state that it had reached, and the next call continues from there.
type Unfinished struct {
	Entry uint64 // the last entry that is applied
	Of    uint64 // the entry that was asked for
}

// Error implements error.
func (u *Unfinished) Error() string {
	return fmt.Sprintf("the replay is at entry %d of %d: ask again, it goes on from there", u.Entry, u.Of)
}
