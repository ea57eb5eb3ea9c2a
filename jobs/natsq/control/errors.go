package control

import "errors"

var (
	// ErrSlotLost ends the jobs of a tenant whose slots another worker may have taken by now.
	ErrSlotLost = errors.New("the tenant's slot was lost: the server was not reached in time")

	// ErrNotWritten reports that the intent of an action could not be stored, so the action was not
	// done.
	ErrNotWritten = errors.New("the audit cannot be written, so nothing is done")

	// ErrOutcome reports that an action was done or has failed, and that the audit has its intent
	// alone.
	ErrOutcome = errors.New("the audit has no outcome of this action")
)
