package labelled

import "errors"

var (
	// ErrUnknown is a pair of a family and an incident that does not exist.
	ErrUnknown = errors.New("unknown series")
	// ErrInvisible is an incident that does not change the values enough at any place.
	ErrInvisible = errors.New("incident does not show")
	// ErrStep is a step of a recording that is not at least a second.
	ErrStep = errors.New("invalid step")
)
