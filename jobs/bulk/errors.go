package bulk

import "errors"

var (
	// ErrFull: the disk of a spool has no room for another payload.
	ErrFull = errors.New("the spool is full")
	// ErrNoServer: no process has ever served the spool, so that its place is not known.
	ErrNoServer = errors.New("no CPU agent serves the spool")
	// ErrUnknown: the server has no payload of the id, or the token is not that of the payload.
	ErrUnknown = errors.New("the server has no such payload")
	// ErrDamaged: bytes are not those that the entry describes, or the head of a file is damaged.
	ErrDamaged = errors.New("bytes are damaged")
	// ErrNotAllowed: the place of an entry is not one that this agent connects to.
	ErrNotAllowed = errors.New("this agent does not connect there")
	// ErrBusy: the server has as many connections as it takes.
	ErrBusy = errors.New("the server is busy")
	// ErrDisk: the server could not read the payload.
	ErrDisk = errors.New("the disk of the server failed")
	// errProtocol: the other side is not of this protocol.
	errProtocol = errors.New("the other side speaks another protocol")
)
