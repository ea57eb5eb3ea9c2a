package tiers_test

import (
	"math"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/tiers"
)

// TestQuantile: a quantile is an upper bound within a factor of two, and the ends of the range are
// counted.
func TestQuantile(t *testing.T) {
	var h tiers.Histogram
	if got := h.Read().Quantile(0.5); got != 0 {
		t.Errorf("the median of nothing is %v", got)
	}
	for ns := int64(1); ns <= 1000; ns++ {
		h.Add(ns)
	}
	for q, want := range map[float64]time.Duration{0: 2, 0.1: 128, 0.5: 512, 1: 1024} {
		if got := h.Read().Quantile(q); got != want {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if h.Sum() != 500500*time.Nanosecond {
		t.Errorf("the sum of 1 to 1000 ns is %v", h.Sum())
	}
	h.Add(-1)
	h.Add(math.MaxInt64)
	c := h.Read()
	if c.Count() != 1002 || c[0] != 1 || c[tiers.HistogramBuckets-1] != 1 {
		t.Errorf("%d durations, %d below 1 ns, %d in the last bucket", c.Count(), c[0], c[tiers.HistogramBuckets-1])
	}
}
