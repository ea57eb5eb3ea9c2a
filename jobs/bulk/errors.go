package bulk

import "errors"

var (
	// ErrFull reports that the disk of a spool has no room for another payload.
	ErrFull = errors.New("the spool is full")
	// ErrNoServer reports that no process has ever served the spool, so that its place is not known.
	ErrNoServer = errors.New("no CPU agent serves the spool")
	// ErrUnknown reports that the server has no payload of the id, or that the token is not that of
	// the payload.
	ErrUnknown = errors.New("the server has no such payload")
	// ErrDamaged reports bytes that are not those of the entry, or a file with a damaged head.
	ErrDamaged = errors.New("bytes are damaged")
	// ErrNotAllowed reports that this agent does not connect to the place of an entry.
	ErrNotAllowed = errors.New("this agent does not connect there")
	// ErrBusy reports that the server has as many connections as it takes.
	ErrBusy = errors.New("the server is busy")
	// ErrDisk reports that the server could not read the payload.
	ErrDisk = errors.New("the disk of the server failed")
	// errProtocol reports that the other side is not of this protocol.
	errProtocol = errors.New("the other side speaks another protocol")
)
