package station

import "errors"

// ErrAudit reports that a simulation has lost or made a job, or that Little's law does not hold. It
// is a defect of the program.
var ErrAudit = errors.New("audit of a station")
