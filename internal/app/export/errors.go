package export

import "errors"

// ErrFormat is wrapped by errors of files that are neither NumPy's nor Arrow's.
var ErrFormat = errors.New("no such format")
