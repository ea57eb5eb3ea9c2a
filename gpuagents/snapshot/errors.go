package snapshot

import "errors"

// Errors of this package. Those of a store come wrapped as they are.
var (
	// ErrCorrupt: a file or the manifest is not what was written. Nothing can be restored from it.
	ErrCorrupt = errors.New("snapshot is damaged")
	// ErrMismatch: the snapshot is whole, and of agents that are not such as it is to be restored
	// into.
	ErrMismatch = errors.New("snapshot does not fit")
	// ErrExists: a snapshot of that name is there, of another swarm or another moment.
	ErrExists = errors.New("snapshot exists already")
	// ErrNotFound: there is no complete snapshot of that name.
	ErrNotFound = errors.New("snapshot not found")
)
