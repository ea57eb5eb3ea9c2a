package wire

import (
	"cmp"
	"sync"
	"time"
)

// PublishMode is what a connection has measured about one kind of streams. The zero value has
// measured nothing. Its methods may be called from several goroutines.
//
// The faster mode depends on the server, which does not tell. A single server makes a folder and
// files for every atomic batch and syncs them: 3 to 3.5 ms and 2.1 ms of processor time, for 1
// message as for 64. 64 single messages took 0.75 ms where the server does not sync each of them,
// and 12 ms where it does (medians of 40, 2 cores). A cluster keeps batches in memory until they
// are complete.
type PublishMode struct {
	mu     sync.Mutex
	single time.Duration // per message, if they are sent one by one; 0 before the first measurement
	whole  time.Duration // of an atomic batch; 0 before the first measurement
	atomic bool          // the mode that was faster at the last decision
	next   time.Time     // when the slower mode is tried again
	pause  time.Duration // between two tries of the slower mode
}

// MinGroup is the smallest group that is measured or sent as an atomic batch. The time of smaller
// groups is the round trip.
const MinGroup = 4

const (
	// Assumptions before the first measurement: a single server that syncs, where one message costs
	// a fraction of a batch.
	firstWhole = 3500 * time.Microsecond
	firstPart  = 14
	// The slower mode is tried after firstRetry, then ever more rarely up to maxRetry: a try each
	// second would show in the 99th percentile. A mode that would take more than maxRatio times as
	// long is not tried: 256 single messages took seconds on a busy disk.
	firstRetry = time.Second
	maxRetry   = time.Minute
	maxRatio   = 4
	// weight is the weight of a new measurement in the mean: a stall of a disk is forgotten after
	// ten measurements.
	weight = 0.2
)

// Atomic reports whether n messages are to be stored as one atomic batch. The caller then reports
// the time with Observe.
func (m *PublishMode) Atomic(n int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if n < MinGroup {
		return false
	}
	whole := cmp.Or(m.whole, firstWhole)
	single := time.Duration(n) * cmp.Or(m.single, whole/firstPart)
	atomic := single > whole
	switch now := time.Now(); {
	case atomic != m.atomic || m.pause == 0:
		m.atomic, m.pause, m.next = atomic, firstRetry, now.Add(firstRetry)
	case now.After(m.next) && max(single, whole) <= maxRatio*min(single, whole):
		m.pause = min(2*m.pause, maxRetry)
		m.next = now.Add(m.pause)
		return !atomic
	}
	return atomic
}

// Observe records that n messages took d. Groups smaller than MinGroup are ignored.
func (m *PublishMode) Observe(atomic bool, n int, d time.Duration) {
	if n < MinGroup {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	mean := &m.whole
	if !atomic {
		mean = &m.single
		d /= time.Duration(n)
	}
	if *mean == 0 || atomic != m.atomic { // the slower mode, after a while: its old mean is no guide
		*mean = d
	} else if atomic {
		d = min(d, 2**mean) // a disk that stalls would stall single messages many times as long
	}
	*mean += time.Duration(weight * float64(d-*mean))
}

// Fix makes Atomic return the given mode for d, for every group of MinGroup or more. Tests use it
// to choose a path.
func (m *PublishMode) Fix(atomic bool, d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.single, m.whole = time.Nanosecond, time.Hour
	if atomic {
		m.single, m.whole = m.whole, m.single
	}
	m.atomic, m.pause, m.next = atomic, d, time.Now().Add(d)
}
