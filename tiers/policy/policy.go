// Package policy decides which pages stay in a tier of limited room, and guesses which pages are asked
// for next (Predictor).
//
// An Expert is a known policy run as a shadow: it sees every access and keeps the set of pages that
// it would hold, ids only. Adaptive runs all of them beside each other and lets the real tier
// follow the one that is doing best.
package policy

// Expert is a cache policy over page ids. It is used by one goroutine at a time. The function that
// a constructor takes is called with each page that the expert evicts, while Access runs.
type Expert interface {
	// Name is how options and statistics call it.
	Name() string
	// Access records that a page was used and says whether it was in the expert's set. Afterwards
	// it is, unless the expert refused it, which it reports as an eviction.
	Access(page uint64) (hit bool)
	// Contains says whether a page is in the set.
	Contains(page uint64) bool
	// Remove forgets a page that was deleted; it is no eviction.
	Remove(page uint64)
}

// New makes an expert of capacity pages, at least one, that reports what it evicts.
type New func(capacity int, evict func(uint64)) Expert

// Experts are the known policies, in the order in which they are preferred when equal: LIRS was
// within reach of the best on most loads, and LRU stands for all that go by recency until a load
// tells them apart.
func Experts() []New {
	return []New{
		func(n int, f func(uint64)) Expert { return NewLIRS(n, f) },
		func(n int, f func(uint64)) Expert { return NewLRU(n, f) },
		func(n int, f func(uint64)) Expert { return NewARC(n, f) },
		func(n int, f func(uint64)) Expert { return NewTinyLFU(n, f) },
		func(n int, f func(uint64)) Expert { return NewS3FIFO(n, f) },
		func(n int, f func(uint64)) Expert { return NewAging(n, f) },
	}
}
