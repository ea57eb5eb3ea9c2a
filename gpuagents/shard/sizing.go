package shard

import (
	"cmp"
	"time"

	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// batchSize chooses how many observations a batch of several entries may have, by the use of the
// device and the time of batches. It has no clock. One goroutine uses it.
type batchSize struct {
	bound time.Duration // how long a batch may take

	most   int // observations
	within int // as many as take no longer than bound, by the last batch that tells; 0: none has
	since  time.Time
	busy   time.Duration // since then
	full   bool          // most has ended a batch since then
}

const (
	// leastBatch and mostBatch clamp the size where the bound allows it. An entry may have
	// leastBatch observations by itself. A device whose batches have mostBatch pays the fixed cost
	// of a batch a few times a second.
	leastBatch = swarms.MaxAddressed
	mostBatch  = 1 << 20
	// sizingWindow is the time over which the use is measured before the size follows it.
	sizingWindow = 100 * time.Millisecond
	// defaultBatchLatency is Options.BatchLatency where it is 0: leastBatch observations of random
	// agents of a gru took 65 ms on two cores of the host device (BenchmarkShard, 1.0M a second on
	// an idle machine), and take less than 1 ms on an H200 (docs/performance.md).
	defaultBatchLatency = 100 * time.Millisecond
)

// newBatchSize begins with leastBatch. bound 0 means defaultBatchLatency.
func newBatchSize(bound time.Duration, now time.Time) batchSize {
	return batchSize{bound: cmp.Or(bound, defaultBatchLatency), most: leastBatch, since: now}
}

// done takes the begin and the end of a batch on the device, its observations, and whether most has
// ended it. Batches come in their order and do not overlap.
func (s *batchSize) done(began, ended time.Time, rows int, full bool) {
	took, passed := ended.Sub(began), ended.Sub(s.since)
	s.busy += took
	s.full = s.full || full
	late := took > s.bound
	if late || full { // a small batch tells little about larger ones, because of its fixed costs
		s.within = max(1, int(min(mostBatch, float64(rows)*float64(s.bound)/float64(max(took, 1)))))
	}
	if passed < sizingWindow && !late {
		return
	}
	switch share := float64(s.busy) / float64(max(passed, 1)); {
	case share > 0.95:
		s.most -= s.most / 5
	case share < 0.70 && s.full:
		s.most += s.most / 2
	}
	highest := cmp.Or(s.within, mostBatch)
	s.most = min(max(s.most, min(leastBatch, highest)), highest)
	s.since, s.busy, s.full = ended, 0, false
}
