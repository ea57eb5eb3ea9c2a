package picture

import "errors"

// ErrInvalid is a picture that cannot be made: sizes out of their limits, or a state that no cell
// has. Nothing was written.
var ErrInvalid = errors.New("invalid picture")
