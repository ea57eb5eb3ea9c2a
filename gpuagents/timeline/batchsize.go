package timeline

// This file chooses how much work a batch on a device may have, by the use of the device and the
// time of its batches. It has no clock: the caller says when batches began and ended.

import "time"

// BatchLimits are what a Size does not leave, but for batches that take too long.
type BatchLimits struct {
	Least, Most int           // items of a batch, 1 <= Least <= Most
	Bound       time.Duration // how long a batch may take
}

// BatchSize is the most items of the next batch. One goroutine uses it at a time.
type BatchSize struct {
	limits BatchLimits

	most   int // items
	within int // as many as take no longer than the bound, by the last batch that tells; 0: none has
	since  time.Time
	busy   time.Duration // since then
	full   bool          // most has ended a batch since then
}

// window is the time over which the use is measured before the size follows it.
const window = 100 * time.Millisecond

// NewBatchSize returns a size that begins with the least items.
func NewBatchSize(l BatchLimits, now time.Time) BatchSize {
	return BatchSize{limits: l, most: l.Least, since: now}
}

// Most returns the most items of the next batch.
func (s *BatchSize) Most() int { return s.most }

// Done takes the begin and the end of a batch on the device, its items, and whether Most has ended
// it. Batches come in their order and do not overlap. A device in use for more than 95 % of a window
// gets smaller batches, and one in use for less than 70 % larger ones, if batches were full.
func (s *BatchSize) Done(began, ended time.Time, items int, full bool) {
	took, passed := ended.Sub(began), ended.Sub(s.since)
	s.busy += took
	s.full = s.full || full
	late := took > s.limits.Bound
	if late || full { // a small batch tells little about larger ones, because of its fixed costs
		s.within = max(1, int(min(float64(s.limits.Most),
			float64(items)*float64(s.limits.Bound)/float64(max(took, 1)))))
	}
	if passed < window && !late {
		return
	}
	switch share := float64(s.busy) / float64(max(passed, 1)); {
	case share > 0.95:
		s.most -= s.most / 5
	case share < 0.70 && s.full:
		s.most += max(1, s.most/2)
	}
	highest := s.within
	if highest == 0 {
		highest = s.limits.Most
	}
	s.most = min(max(s.most, min(s.limits.Least, highest)), highest)
	s.since, s.busy, s.full = ended, 0, false
}
