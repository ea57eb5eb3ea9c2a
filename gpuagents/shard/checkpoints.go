package shard

import "github.com/exoswarm/exoswarm/gpuagents/pages"

// Checkpoints keeps the state of shards across processes. Its methods may be called from several
// goroutines. Checkpoints only save time: an agent without one, or with an old one, replays the
// log.
type Checkpoints interface {
	// Open opens the store of a shard, or makes one for so many pages of pageSize bytes. It fails
	// with tiers.ErrLocked while another process has it open. The caller closes it. It may return a
	// pages.Layered.
	Open(swarm string, shard, pageSize, pages int) (pages.Store, error)
	// Remove removes the store of a shard, which is not open, wherever it can. It is no error if
	// there is none.
	Remove(swarm string, shard int) error
	// Shards lists the shards with a store. The list is valid beside an error, which says what
	// could not be read.
	Shards() ([]ID, error)
}

// ID identifies a shard. Swarm is the key of its swarm, see swarms.Swarm.Key, so a store never
// belongs to a later swarm of the same id.
type ID struct {
	Swarm string
	Shard int
}
