package pool

import "errors"

// ErrEmergency is what an agent says of itself that takes no work because too much of it failed.
var ErrEmergency = errors.New("too much fails on this agent's device")
