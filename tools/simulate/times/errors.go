package times

import "errors"

// ErrInvalid is a file, a series or a histogram that is not in the format of Read.
var ErrInvalid = errors.New("invalid file of times")
