package snapshot

import "errors"

// Errors of this package. Errors of a store are wrapped.
var (
	// ErrCorrupt: a file or the manifest differs from what was written. Nothing can be restored
	// from the snapshot.
	ErrCorrupt = errors.New("snapshot is damaged")
	// ErrMismatch: the snapshot is whole, but has another version of the format, or other agents
	// than the swarm into which it is restored.
	ErrMismatch = errors.New("snapshot does not fit")
	// ErrExists: there is a snapshot of that name, of another swarm or another entry.
	ErrExists = errors.New("snapshot exists already")
	// ErrNotFound: there is no complete snapshot of that name.
	ErrNotFound = errors.New("snapshot not found")
	// ErrVariable: the snapshot has no variable of that name.
	ErrVariable = errors.New("no such variable")
)
