package wire

import (
	"math"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// Quota is the effect of the limits of a tenant. In every field but Weight, 0 means no limit.
type Quota struct {
	Weight float64 // share of the fair queue
	Rate   float64 // jobs that begin per second
	Burst  float64 // tokens that a tenant can save; at least 1
	// Concurrency bounds the jobs in progress, Queued the jobs in the queue of a pool.
	Concurrency, Queued int
}

// QuotaOf returns the quota that limits amount to. Without a burst it is one second of the rate.
func QuotaOf(l jobs.Limits) Quota {
	q := Quota{Weight: 1}
	if l.Weight != nil {
		q.Weight = *l.Weight
	}
	if l.Rate != nil {
		q.Rate = *l.Rate
	}
	if q.Burst = math.Max(1, math.Ceil(q.Rate)); l.Burst != nil && *l.Burst > 0 {
		q.Burst = float64(*l.Burst)
	}
	if l.Concurrency != nil {
		q.Concurrency = *l.Concurrency
	}
	if l.Queued != nil {
		q.Queued = *l.Queued
	}
	return q
}

// Limited reports whether workers need slots or tokens of the record to begin jobs.
func (q Quota) Limited() bool { return q.Rate > 0 || q.Concurrency > 0 }

// sliceDuration is how long the tokens last that a worker takes at once, if its slots do not last
// longer. So a worker writes the record ten times a second.
const sliceDuration = 100 * time.Millisecond

// slice returns the fewest tokens that are worth a write.
func (q Quota) slice() float64 {
	return math.Min(q.Burst, math.Max(1, math.Floor(q.Rate*sliceDuration.Seconds())))
}
