package gpuagents

import "errors"

// ErrDevice marks a failure of the accelerator; the shard's state on it is lost and is rebuilt from the log.
var ErrDevice = errors.New("device failed")
