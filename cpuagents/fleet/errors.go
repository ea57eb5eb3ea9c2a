package fleet

import "errors"

// ErrOptions marks limits that cannot be applied. The text says which, and what is valid.
var ErrOptions = errors.New("invalid limits of a fleet")
