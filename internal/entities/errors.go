package entities

import "errors"

// ErrNoKey is the error of a swarm whose specification names no key columns.
var ErrNoKey = errors.New("its specification has no key, so it has no entities")
