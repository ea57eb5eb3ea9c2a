package space

import (
	"errors"
	"fmt"
)

// ErrInvalid is a mistake of the caller of a Box: sizes that do not fit together, or a cell that is not
// there. Nothing was done.
var ErrInvalid = errors.New("invalid box")

// RoomError says that a device has too little memory for a box. It wraps the error of the device.
type RoomError struct {
	Agents, Bytes int64
	Err           error
}

// Error implements error.
func (e *RoomError) Error() string {
	return fmt.Sprintf("neighbours: a box of %d agents takes %d bytes of the device beside their pages, which are not "+
		"free there: use fewer agents, or an agent process with more device memory: %v", e.Agents, e.Bytes, e.Err)
}

// Unwrap returns the error of the device.
func (e *RoomError) Unwrap() error { return e.Err }
