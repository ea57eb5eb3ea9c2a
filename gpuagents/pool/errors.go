package pool

import "errors"

// ErrEmergency says that an agent accepts no work because too many operations failed.
var ErrEmergency = errors.New("too much fails on this agent's device")
