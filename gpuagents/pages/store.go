package pages

import (
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// PageStore keeps the pages of one shard; *pagestore.Store is one, and says what it promises. What was put becomes durable
// with a Commit, together with its note, or not at all. Pages that do not fit into memory are put between two commits too.
type Store interface {
	tiers.Store
	Close() error
}

// Layered is a PageStore that says of its tiers how pages leave them and what they hold. Without it pages stay in the tier that they were
// put into, as long as there is room.
type Layered interface {
	Store
	// Disks are the tiers, in their order.
	Disks() []pager.Disk
	// Holds is what a tier holds now.
	Holds(tier int) TierUsage
}

// TierUsage is what a tier of a store holds.
type TierUsage struct {
	// Pages counts records, and Bytes what they take on the medium. A page that is written or moved has two until that is committed.
	Pages int
	Bytes int64
	// Fill is the part of the tier's room that is in use, 0 to 1; of a room that several stores share, it counts what all of them take.
	Fill float64
	// Unavailable is why the tier could not be opened with the store, which does without it until it is opened again; nil: it was.
	Unavailable error
}
