package batch

import "errors"

// errCorrupt is wrapped by errors of decoders: the bytes are not what an encoder of this package
// wrote.
var errCorrupt = errors.New("packed column is corrupt")
