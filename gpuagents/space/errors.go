package space

import "errors"

// ErrInvalid is a mistake of the caller of a Box: sizes that do not fit together, or a cell that is
// not there. Nothing was done.
var ErrInvalid = errors.New("invalid box")
