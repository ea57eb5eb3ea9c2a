package shard

import "github.com/exoswarm/exoswarm/gpuagents/pages"

// Checkpoints is where an agent keeps the state of its shards from one process to the next. Methods may be called from
// several goroutines. What is kept only saves time: an agent without it, or with an old one, replays the log.
type Checkpoints interface {
	// Open opens what is kept of a shard, or makes room for so many pages of pageSize bytes. It fails with
	// tiers.ErrLocked while another process has it open. The caller closes it. What it opens may be Layered.
	Open(swarm string, shard, pageSize, pages int) (pages.Store, error)
	// Remove deletes what is kept of a shard that is not open, wherever it can. Nothing there is no error.
	Remove(swarm string, shard int) error
	// Shards lists what is kept, also beside an error, which says what could not be looked at.
	Shards() ([]ID, error)
}

// ID names a shard. Swarm is the key of its swarm, see jobs.Swarm.Key: what is kept of a swarm never belongs to a later
// one of the same id.
type ID struct {
	Swarm string
	Shard int
}
