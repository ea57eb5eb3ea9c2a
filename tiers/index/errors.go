package index

import "errors"

// The conditions that a caller can act on, found with errors.Is.
var (
	// ErrNone means that the directories hold no index: the store is new, or it lost its index.
	ErrNone = errors.New("no index")
	// ErrNote means that a note is longer than MaxNote.
	ErrNote = errors.New("note is too long")
	// ErrBroken means that an append or a sync failed earlier. Only Renew makes the index usable
	// again.
	ErrBroken = errors.New("index needs a new generation")
)
