package natsq

import (
	"cmp"
	"sync"
	"time"
)

// way is what a connection has learned about how the messages of one kind of stream are stored fastest: side by side or as one atomic
// batch. It depends on the server, which does not tell. One on its own makes a folder and files for every atomic batch and syncs them: 3 to
// 3.5 ms and 2.1 ms of processor time for 1 message as for 64, while 64 by themselves took 0.75 ms where it does not sync each and 12 ms where it
// does (medians of 40, 2 cores). A cluster keeps batches in memory until they are complete.
type way struct {
	mu            sync.Mutex
	single, whole time.Duration // of a message among others, and of an atomic batch; 0 before the first
	together      bool          // what was the faster last time
	next          time.Time     // when the slower is tried again
	pause         time.Duration // until then, from the time before
}

const (
	// wayGroup is the fewest messages that tell anything: fewer are side by side in no time, and what they take is the way there and back.
	wayGroup = 4
	// What is supposed until it was measured: a synced server on its own, and of a message by itself a part of that.
	firstWhole = 3500 * time.Microsecond
	firstPart  = 14
	// The way that seems the slower is tried after a second, and ever more rarely as long as it is: a try in a second would itself be
	// seen in the 99th percentile. One that would take too many times as long is not made: 256 messages by themselves took seconds on a busy disk.
	firstDoubt = time.Second
	lastDoubt  = time.Minute
	tooLong    = 4
	// weight of a new measurement: a disk that stalls once is forgotten after ten.
	weight = 0.2
)

// choose says whether n messages are to be an atomic batch.
func (w *way) choose(n int) (together bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n < wayGroup {
		return false
	}
	whole := cmp.Or(w.whole, firstWhole)
	single := time.Duration(n) * cmp.Or(w.single, whole/firstPart)
	together = single > whole
	switch now := time.Now(); {
	case together != w.together || w.pause == 0:
		w.together, w.pause, w.next = together, firstDoubt, now.Add(firstDoubt)
	case now.After(w.next) && max(single, whole) <= tooLong*min(single, whole):
		w.pause = min(2*w.pause, lastDoubt)
		w.next = now.Add(w.pause)
		return !together
	}
	return together
}

// took learns how long n messages took.
func (w *way) took(together bool, n int, d time.Duration) {
	if n < wayGroup {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	of := &w.whole
	if !together {
		of = &w.single
		d /= time.Duration(n)
	}
	if *of == 0 || together != w.together { // the slower, after a while: what was measured before is no guide
		*of = d
	} else if together {
		d = min(d, 2**of) // a disk that stalls would stall many times as long with messages by themselves
	}
	*of += time.Duration(weight * float64(d-*of))
}
