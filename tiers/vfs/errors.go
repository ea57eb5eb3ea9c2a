package vfs

import "errors"

// The conditions that a caller can act on, found with errors.Is.
var (
	// ErrLocked: another process, or another opening in this one, holds the lock.
	ErrLocked = errors.New("locked by another process")
	// ErrAlignment: a transfer on a direct file is not a multiple of BlockSize in offset, length or
	// address.
	ErrAlignment = errors.New("transfer is not aligned")
)
