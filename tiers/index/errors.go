package index

import "errors"

// The conditions that a caller can act on, found with errors.Is.
var (
	// ErrNone: the directories hold no index. A new store, or one that lost it.
	ErrNone = errors.New("no index")
	// ErrNote: a note is longer than MaxNote.
	ErrNote = errors.New("note is too long")
	// ErrBroken: an append or sync failed earlier; only Rotate gets the index going again.
	ErrBroken = errors.New("index needs a new generation")
)
