package columnpack

import "errors"

// ErrCorrupt is wrapped by errors of decoders: the bytes are not what an encoder of this package
// wrote.
var ErrCorrupt = errors.New("packed column is corrupt")
