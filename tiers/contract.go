package tiers

import "context"

// Kind says what a page holds, for the codec.
type Kind struct {
	// Elem is the element size in bytes to shuffle by, up to 16; 0 or 1 shuffles nothing.
	Elem uint8
	// Class groups pages that shrink alike; whether encoding pays is learned a class.
	Class uint8
}

// Store keeps pages durably below the memory tiers; package pagestore is one. Its methods may be
// called from several goroutines at once. Its package comment has the promises.
//
// A ctx that is over by the time a Put has written its record makes the Put fail, and nothing of it
// is ever seen: a caller that gave up on a call that stalls may put the page elsewhere.
type Store interface {
	PageSize() int
	// Tiers is the number of its directories, the fastest first.
	Tiers() int
	Put(ctx context.Context, tier int, page uint64, content []byte, kind Kind) error
	Get(ctx context.Context, page uint64, dst []byte) error
	// Has reports whether the page is there, lost or not.
	Has(page uint64) bool
	// Where is the tier that Get would read the page from.
	Where(page uint64) (tier int, err error)
	// Move copies the page into another tier; its old place comes free with the next Settle or
	// Commit.
	Move(ctx context.Context, page uint64, tier int) error
	Settle(ctx context.Context) error
	Delete(ctx context.Context, page uint64) error
	Commit(ctx context.Context, note []byte) (epoch uint64, err error)
	// Pages returns the ids of all pages in ascending order.
	Pages() []uint64
	Note() []byte
}
