package raster

import "errors"

// Errors of this package.
var (
	// ErrUnknown is a variable that the agents do not have.
	ErrUnknown = errors.New("unknown variable")
	// ErrInvalid is a number of cells out of range.
	ErrInvalid = errors.New("invalid picture")
)
