package grid

import "errors"

// ErrInvalid is a mistake of the caller of a Plane: sizes that do not fit together, or a cell that
// is not there. Nothing was done.
var ErrInvalid = errors.New("invalid grid")
