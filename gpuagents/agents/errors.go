package agents

import "errors"

// ErrInvalid is a mistake of the caller of Agents: sizes that do not fit together. Nothing was
// done.
var ErrInvalid = errors.New("invalid agents")
