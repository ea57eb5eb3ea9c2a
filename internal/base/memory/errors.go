package memory

import "errors"

// ErrTooLarge is returned for a request that no wait makes possible.
var ErrTooLarge = errors.New("it is more than the whole budget")
