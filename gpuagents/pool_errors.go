package gpuagents

import "errors"

// ErrEmergency is what an agent says of itself that takes no work because too much of it failed.
var ErrEmergency = errors.New("too much fails on this agent's device")

// errMoved ends the work on a shard that is to go on elsewhere: on another device of this agent, or with another agent.
var errMoved = errors.New("the shard goes to another device")
