package times

import (
	"cmp"
	"math/bits"
	"slices"
)

// A bucket holds durations that share their highest bits; 64 buckets cover each factor of two, so a
// bucket is at most 1.6 % wide.
const shareBits = 7

// Bucket counts the durations from NS up to the next bucket.
type Bucket struct {
	NS int64 // the shortest duration of the bucket, in nanoseconds
	N  int64 // how many durations it has
}

func (b Bucket) width() int64 {
	return 1 << max(0, bits.Len64(uint64(b.NS))-shareBits)
}

func floor(ns int64) int64 {
	if ns <= 0 {
		return 0
	}
	shift := max(0, bits.Len64(uint64(ns))-shareBits)
	return ns >> shift << shift
}

// Histogram counts durations in buckets. The zero value is empty. It is not safe for concurrent
// use.
type Histogram struct {
	buckets []Bucket // by rising NS
	n       int64
}

// Add counts a duration in nanoseconds. Negative durations count as zero.
func (h *Histogram) Add(ns int64) { h.add(Bucket{NS: floor(ns), N: 1}) }

func (h *Histogram) add(b Bucket) {
	at, found := slices.BinarySearchFunc(h.buckets, b.NS, func(e Bucket, ns int64) int { return cmp.Compare(e.NS, ns) })
	if found {
		h.buckets[at].N += b.N
	} else {
		h.buckets = slices.Insert(h.buckets, at, b)
	}
	h.n += b.N
}

// Merge adds all durations of another histogram.
func (h *Histogram) Merge(other *Histogram) {
	for _, b := range other.buckets {
		h.add(b)
	}
}

// N returns the number of durations.
func (h *Histogram) N() int64 { return h.n }

// Mean returns the mean in nanoseconds, of durations in the middle of their buckets. It is 0
// without durations.
func (h *Histogram) Mean() float64 {
	sum := 0.0
	for _, b := range h.buckets {
		sum += (float64(b.NS) + float64(b.width()-1)/2) * float64(b.N)
	}
	if h.n == 0 {
		return 0
	}
	return sum / float64(h.n)
}

// Quantile returns the duration that a share q of the durations does not exceed, for q from 0 to 1.
// The durations of a bucket are spread evenly over it. It is 0 without durations.
func (h *Histogram) Quantile(q float64) float64 {
	left := q * float64(h.n)
	for _, b := range h.buckets {
		if left <= float64(b.N) {
			return float64(b.NS) + float64(b.width()-1)*max(0, left)/float64(b.N)
		}
		left -= float64(b.N)
	}
	if len(h.buckets) == 0 {
		return 0
	}
	last := h.buckets[len(h.buckets)-1]
	return float64(last.NS + last.width() - 1)
}
