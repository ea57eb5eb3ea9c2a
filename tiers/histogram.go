package tiers

import (
	"math/bits"
	"sync/atomic"
	"time"
)

// HistogramBuckets is the number of buckets of a Histogram.
const HistogramBuckets = 40

// Histogram counts durations. Its zero value is empty. All methods may be called from several
// goroutines at once; it must not be copied.
type Histogram struct {
	buckets [HistogramBuckets]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
}

// Add counts a duration in nanoseconds. Negative ones count as 0, and those above the last bucket
// count in it.
func (h *Histogram) Add(ns int64) {
	ns = max(ns, 0)
	h.buckets[min(bits.Len64(uint64(ns)), HistogramBuckets-1)].Add(1)
	h.sum.Add(ns)
}

// Sum returns the sum of all durations. Beside Read it may have durations that Read misses.
func (h *Histogram) Sum() time.Duration { return time.Duration(h.sum.Load()) }

// Read copies the counters, one by one: it may miss durations that are added meanwhile.
func (h *Histogram) Read() (out Counts) {
	for i := range out {
		out[i] = h.buckets[i].Load()
	}
	return out
}

// Counts are the counters of a Histogram: bucket i counts durations under 1<<i nanoseconds that are
// in no earlier bucket.
type Counts [HistogramBuckets]uint64

// Count returns the number of durations.
func (c Counts) Count() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

// Quantile returns an upper bound of the q-quantile, 0 <= q <= 1; 0 without durations.
func (c Counts) Quantile(q float64) time.Duration {
	total, seen := c.Count(), uint64(0)
	for i, n := range c {
		seen += n
		if n > 0 && float64(seen) >= q*float64(total) {
			return time.Duration(int64(1) << i)
		}
	}
	return 0
}
