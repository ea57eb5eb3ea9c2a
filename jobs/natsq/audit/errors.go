package audit

import "errors"

// ErrNotWritten: the intent of an action could not be stored, so the action was not done.
var ErrNotWritten = errors.New("the audit cannot be written, so nothing is done")

// ErrOutcome: an action was done or has failed, and the audit has its intent alone.
var ErrOutcome = errors.New("the audit has no outcome of this action")
