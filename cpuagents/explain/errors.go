package explain

import "errors"

// ErrState is a stored state that an explainer cannot use.
var ErrState = errors.New("unusable state of an explainer")
