package explain

import (
	"errors"
)

// ErrState is a stored state that an explainer cannot use.
var ErrState = errors.New("unusable state of an explainer")

// ErrLimits marks limits that cannot be applied. The text says which, and what is valid.
var ErrLimits = errors.New("invalid limits of a fleet")
