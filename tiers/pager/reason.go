package pager

import "sync/atomic"

// Reason is why a page moved.
type Reason uint8

// The reasons.
const (
	ByDemand      Reason = iota // a pin asked for it
	ByRoom                      // a pin asked for its frame
	ByWatermark                 // few frames were free, or a tier of the store was full
	ByAge                       // it was idle for its tier's threshold
	ByShare                     // Resize has taken frames from its tier
	ByHeat                      // it was in use again and again, or read again soon
	ByHint                      // WillNeed or DoneWith
	BySweep                     // WillSweep
	ByRun                       // it comes next in a run
	ByCorrelation               // it followed the last time
	reasons
)

// String returns the name that metrics use.
func (r Reason) String() string {
	return [...]string{"demand", "room", "watermark", "age", "share", "heat", "hint", "sweep", "run", "correlation"}[r]
}

// guessed reports whether the page moved without a call of the user that needs it now.
func (r Reason) guessed() bool { return r >= ByHeat }

// maxPlaces is the greatest number of tiers: of memory tiers and those of a pagestore.
const maxPlaces = MaxMemory + 16

// migrations counts moves between tiers, all numbered from the top down, by reason.
type migrations [maxPlaces][maxPlaces][reasons]atomic.Uint64

// count counts the move of a page from one tier to another.
func (m *migrations) count(from, to int, why Reason) { m[from][to][why].Add(1) }
