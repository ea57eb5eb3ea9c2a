package statelog

import "errors"

// ErrDamaged is the error of a log that has an entry which its writer cannot have appended, or that
// lacks one which it must have.
var ErrDamaged = errors.New("the log was changed by another program")
