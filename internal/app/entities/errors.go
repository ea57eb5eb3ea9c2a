package entities

import "errors"

// ErrNoKey is the error of a swarm whose specification names no key columns.
var ErrNoKey = errors.New("its specification has no key, so it has no entities")

// ErrEvicted says that the entity has lost its group to another entity, or because it had no row
// for a time.
var ErrEvicted = errors.New("it has no group now: it returns with its state at its next row")
