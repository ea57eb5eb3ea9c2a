// Package policy decides which pages stay in a tier of limited room, and guesses which pages are
// asked for next (Predictor).
//
// An Expert is a known policy run as a shadow: it sees every access and keeps the set of pages that
// it would hold, ids only. Adaptive runs all experts at once, and the real tier follows the best
// one.
package policy

// Expert is a cache policy over page ids. It is used by one goroutine at a time. The function that
// a constructor takes is called with each page that the expert evicts, while Access runs.
type Expert interface {
	// Name returns the name in options and statistics.
	Name() string
	// Access records that a page was used and reports whether it was in the expert's set.
	// Afterwards the page is in the set, unless the expert refused it and reported an eviction.
	Access(page uint64) (hit bool)
	// Contains reports whether a page is in the set.
	Contains(page uint64) bool
	// Remove forgets a page that was deleted; it is no eviction.
	Remove(page uint64)
}

// New makes an expert of capacity pages, at least one, that reports what it evicts.
type New func(capacity int, evict func(uint64)) Expert

// Experts are the policies that Adaptive chooses from. The first is preferred when several are
// equal: LIRS was close to the best on most loads, and LRU stands for recency until a load tells
// them apart. Without LIRS, LRU or TinyLFU the worst load of TestTable and TestMixtures loses 26 %
// of its hits or more, without S3FIFO 7 %. ARC and aging counters gained nothing beside these four.
func Experts() []New {
	return []New{
		func(n int, f func(uint64)) Expert { return NewLIRS(n, f) },
		func(n int, f func(uint64)) Expert { return NewLRU(n, f) },
		func(n int, f func(uint64)) Expert { return NewTinyLFU(n, f) },
		func(n int, f func(uint64)) Expert { return NewS3FIFO(n, f) },
	}
}
