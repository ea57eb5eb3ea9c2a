package gpubatch

import "time"

// Limits clamp a Size. A Size falls below Least if batches take longer than Bound.
type Limits struct {
	Least, Most int           // items of a batch, 1 <= Least <= Most
	Bound       time.Duration // maximum time of a batch
}

// Size is the maximum number of items of the next batch, chosen by the use of the device and the
// time of earlier batches. It has no clock: the caller passes all times. One goroutine uses it at a
// time.
type Size struct {
	limits Limits

	most   int       // items
	within int       // items that take no longer than the bound, estimated from the last full or late batch; 0: unknown
	since  time.Time // start of the window
	busy   time.Duration
	full   bool // a batch of the window was cut at most
}

// window is the time over which the use of the device is measured.
const window = 100 * time.Millisecond

// NewSize returns a Size that starts at the least items.
func NewSize(l Limits, now time.Time) Size {
	return Size{limits: l, most: l.Least, since: now}
}

// Most returns the maximum number of items of the next batch.
func (s *Size) Most() int { return s.most }

// Done records a batch: when it began and ended on the device, its items, and whether Most cut it.
// Batches are recorded in order and do not overlap. If the device was in use for more than 95 % of
// a window, batches get smaller; below 70 % they get larger, if they were full.
func (s *Size) Done(began, ended time.Time, items int, full bool) {
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
