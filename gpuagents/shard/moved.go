package shard

import "errors"

// errMoved ends the work on a shard that is to go on elsewhere: on another device of this agent, or with another agent.
var ErrMoved = errors.New("the shard goes to another device")
