package lattice

import "errors"

// ErrInvalid is a mistake of the caller of a Lattice: sizes that do not fit together, or an agent
// that is not there. Nothing was done.
var ErrInvalid = errors.New("invalid lattice")
