package model

import "errors"

// Errors of this package. Errors of a store are wrapped.
var (
	// ErrNotFound: there is no complete model of that name.
	ErrNotFound = errors.New("model not found")
	// ErrExists: there is another model of that name.
	ErrExists = errors.New("model exists already")
	// ErrCorrupt: the manifest or the file differs from what was written.
	ErrCorrupt = errors.New("model is damaged")
	// ErrMismatch: the model is whole, but has another version of the format, another digest, or
	// other tensors than the cell that asks for it.
	ErrMismatch = errors.New("model does not fit")
	// ErrTooLarge: the file has more bytes than a model may have.
	ErrTooLarge = errors.New("model is too large")
)
