package pages

import (
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// Store keeps the pages of one shard. *pagestore.Store implements it and states the contract. Pages
// that were put become durable with a Commit, together with its note, or not at all. Pages that do
// not fit into memory are put between two commits too.
type Store interface {
	tiers.Store
	Close() error
}

// Layered is a Store that tells how pages leave its tiers and what the tiers hold. In any other
// Store pages stay in the tier that they were put into as long as it has room.
type Layered interface {
	Store
	// Disks returns the tiers in their order.
	Disks() []pager.Disk
	// Holds returns the content of a tier.
	Holds(tier int) TierUsage
}

// TierUsage is the content of a tier of a store.
type TierUsage struct {
	// Pages counts records, and Bytes what they take on the medium. A page that was written or
	// moved has two records until that is committed.
	Pages int
	Bytes int64
	// Fill is the used part of the capacity of the tier, 0 to 1, or of what others leave of the
	// medium if that is less. If several stores share the capacity, it counts what all of them use.
	Fill float64
	// Unavailable is the error with which the tier could not be opened; the store does not use the
	// tier until it is opened again. nil: the tier was opened.
	Unavailable error
}
