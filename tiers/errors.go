package tiers

import (
	"errors"
	"fmt"
)

// The conditions that a caller can act on. Every error of this package and of its sub-packages that
// means one of them wraps it, so callers choose with errors.Is.
var (
	// ErrInvalid: the options or arguments make no sense; nothing was done.
	ErrInvalid = errors.New("invalid argument")
	// ErrNotFound: the page does not exist.
	ErrNotFound = errors.New("page does not exist")
	// ErrExist: the page exists already.
	ErrExist = errors.New("page exists")
	// ErrFull: a tier's capacity, or the disk less its reserve, has no room. Nothing was
	// overwritten.
	ErrFull = errors.New("tier is full")
	// ErrLost: the page's newest content is gone (its medium failed before it was durable, or its
	// segment is missing) and nothing older is served in its place. Writing the page again heals
	// it.
	ErrLost = errors.New("page content is lost")
	// ErrCorrupt: bytes on the medium are not what was written: a checksum, an identity or a length
	// is wrong.
	ErrCorrupt = errors.New("stored bytes are corrupt")
	// ErrMismatch: the directory belongs to another store, another tier, another page size or
	// another key.
	ErrMismatch = errors.New("directory belongs to another store")
	// ErrVersion: a file has a format version that this program does not know.
	ErrVersion = errors.New("unknown format version")
	// ErrSync: a sync failed, so nothing is known about the writes since the last one that
	// succeeded. The file takes no more writes, and the sync is not tried again on it.
	ErrSync = errors.New("sync failed")
	// ErrLocked: another process has the store open.
	ErrLocked = errors.New("store is open in another process")
	// ErrUnavailable: the tier's breaker is open after failures; it is probed again by itself.
	ErrUnavailable = errors.New("tier is unavailable")
	// ErrMedium: the medium of a tier failed a read, or does not answer. The page may be there;
	// trying again may help.
	ErrMedium = errors.New("medium failed")
	// ErrClosed: the store was closed before.
	ErrClosed = errors.New("closed")
	// ErrLeak: Close found pages still pinned.
	ErrLeak = errors.New("pages still pinned")
)

// LostError lists pages whose newest content is lost. It wraps ErrLost and the cause.
type LostError struct {
	// Pages are the ids, in ascending order.
	Pages []uint64
	Cause error
}

// Error implements error; it names at most eight of the pages.
func (e *LostError) Error() string {
	shown, more := e.Pages, ""
	if len(shown) > 8 {
		shown, more = shown[:8], " ..."
	}
	return fmt.Sprintf("%d pages lost %v%s: %v", len(e.Pages), shown, more, e.Cause)
}

// Unwrap gives ErrLost and the cause to errors.Is.
func (e *LostError) Unwrap() []error { return []error{ErrLost, e.Cause} }
