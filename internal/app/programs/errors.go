package programs

import "errors"

// ErrBusy is wrapped by the errors for requests beyond what the server does at a time.
var ErrBusy = errors.New("too many requests of programs at a time")

// ErrTooLarge is wrapped by the errors for bodies that are too large.
var ErrTooLarge = errors.New("the body is too large")

// ErrMedia is wrapped by the errors for bodies of a media type that an operation does not take.
var ErrMedia = errors.New("media type")

// ErrSlow is wrapped by the errors for bodies that come too slowly.
var ErrSlow = errors.New("the body comes too slowly")
