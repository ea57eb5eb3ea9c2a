package gpuagents

import "errors"

// ErrOptions is a mistake of the caller of Start.
var ErrOptions = errors.New("invalid options of a GPU agent")

// errUnwanted ends the following of a shard whose offer was taken back.
var errUnwanted = errors.New("the shard is not offered to this agent any more")

// errHanded ends the work on a shard that another agent is ready to take over.
var errHanded = errors.New("the shard is handed to another agent")
