package codec

import "sync/atomic"

// Numbers of the Chooser.
const (
	// hopelessAfter tries in a row that did not pay, a class is left raw.
	hopelessAfter = 4
	// retryEvery pages of a class that is left raw, one is tried again, since state changes its
	// nature as it learns. The cost of a wrong guess is at most 1/64 of the compressor's time,
	// about 1 % of a disk write.
	retryEvery = 64
)

// Chooser remembers for each of 256 classes of page whether compression pays there, so that
// hopeless pages are not tried again and again. A class is whatever the caller says: pages of one
// state variable, of one swarm. All methods may be called at once; the zero Chooser is ready.
type Chooser struct {
	classes [256]class
}

// class is the memory of one class.
type class struct {
	failures atomic.Uint32 // tries in a row that did not pay, up to hopelessAfter
	skipped  atomic.Uint32 // pages since the last try
}

// Try says whether the next page of a class should be encoded at all.
func (c *Chooser) Try(cl uint8) bool {
	k := &c.classes[cl]
	if k.failures.Load() < hopelessAfter {
		return true
	}
	return k.skipped.Add(1)%retryEvery == 0
}

// Learn records whether a try paid.
func (c *Chooser) Learn(cl uint8, paid bool) {
	k := &c.classes[cl]
	switch {
	case paid:
		k.failures.Store(0)
	case k.failures.Load() < hopelessAfter:
		k.failures.Add(1)
	}
}
