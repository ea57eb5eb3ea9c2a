package lattice

import "errors"

// ErrHear is a reduction over neighbours that a cell cannot have.
var ErrHear = errors.New("invalid reduction over neighbours")
