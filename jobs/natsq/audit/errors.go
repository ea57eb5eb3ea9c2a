package audit

import "errors"

// ErrNotWritten reports that the intent of an action could not be stored, so the action was not done.
var ErrNotWritten = errors.New("the audit cannot be written, so nothing is done")

// ErrOutcome reports that an action was done or has failed, and that the audit has its intent alone.
var ErrOutcome = errors.New("the audit has no outcome of this action")
