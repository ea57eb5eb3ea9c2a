package graph

import "errors"

// ErrInvalid is a mistake of the caller of a Network: sizes that do not fit together, or a cell
// that is not there. Nothing was done.
var ErrInvalid = errors.New("invalid graph")
