package pool

import (
	"fmt"
	"time"
)

// Level is how far an agent's work is cut down because its device fails. Levels are ordered: a higher one is worse.
type Level int

// The levels, by the share of operations of the last minute that failed on the device.
const (
	Normal    Level = iota // below 1 %
	Reduced                // from 1 %: batches go in smaller launches
	OnHost                 // from 5 %: shards are served by the host device
	Emergency              // from 10 %: shards are given back, and none is taken
)

// levelNames are what registry, logs and scenarios say.
var levelNames = [...]string{"normal", "reduced", "host", "emergency"}

// String implements fmt.Stringer.
func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return fmt.Sprintf("level(%d)", int(l))
	}
	return levelNames[l]
}

// Patience is how long an agent remembers, and how slowly it goes back to a better level. The zero value is the defaults.
type Patience struct {
	// Window is the time in which failures are counted; 0: one minute.
	Window time.Duration
	// Quiet is how long nothing may have failed before the agent goes back by one level; 0: 30 s.
	Quiet time.Duration
	// Probe is the time between two tries of a device that serves no shards; 0: 5 s.
	Probe time.Duration
	// Now is the clock of the window and the quiet time; nil: time.Now.
	Now func() time.Time
}

func (p Patience) withDefaults() Patience {
	for _, d := range []struct {
		to *time.Duration
		by time.Duration
	}{{&p.Window, time.Minute}, {&p.Quiet, 30 * time.Second}, {&p.Probe, 5 * time.Second}} {
		if *d.to <= 0 {
			*d.to = d.by
		}
	}
	if p.Now == nil {
		p.Now = time.Now
	}
	return p
}

const (
	// windowOps bounds the window by number: at thousands of entries a second a minute says little of the device as it is now.
	windowOps = 1000
	// leastOps is what a share is taken of when there are fewer operations: one failure is then 1 %, so that an idle agent is not at
	// Emergency for the only entry of its minute, and ten failures are as many as it takes.
	leastOps = 100
)

// sample is how one operation ended.
type sample struct {
	at     time.Time
	failed bool
}

// degradation is the level of one agent as a function of how operations end. It goes up at once, and down by one level after a quiet
// time. It looks at no clock: times are handed in and do not go backwards. One goroutine uses it at a time.
type degradation struct {
	Patience
	level   Level
	samples [windowOps]sample // a ring
	first   int               // the oldest
	n       int               // samples in the window
	failed  int               // of those
	since   time.Time         // of the last failure and the last change of level, whichever is later
	sound   bool              // the device has passed a probe since then
}

// forget drops the oldest sample.
func (d *degradation) forget() {
	if d.samples[d.first].failed {
		d.failed--
	}
	d.first = (d.first + 1) % windowOps
	d.n--
}

// expire drops what is older than the window.
func (d *degradation) expire(now time.Time) {
	for d.n > 0 && now.Sub(d.samples[d.first].at) > d.Window {
		d.forget()
	}
}

// share is how many operations of so many failed, in the window that ends now.
func (d *degradation) share(now time.Time) (failed, of int) {
	d.expire(now)
	return d.failed, max(d.n, leastOps)
}

// levelOf is the level that a share calls for.
func levelOf(failed, of int) Level {
	switch {
	case 100*failed < of:
		return Normal
	case 100*failed < 5*of:
		return Reduced
	case 100*failed < 10*of:
		return OnHost
	}
	return Emergency
}

// done says that an operation has ended, and whether that changed the level.
func (d *degradation) done(now time.Time, failed bool) (changed bool) {
	d.expire(now)
	if d.n == windowOps {
		d.forget()
	}
	d.samples[(d.first+d.n)%windowOps] = sample{now, failed}
	d.n++
	if !failed {
		return false // a good one makes no share worse
	}
	d.failed++
	d.since, d.sound = now, false
	return d.raise(now, levelOf(d.share(now)))
}

// raise is the way up.
func (d *degradation) raise(now time.Time, to Level) (changed bool) {
	if to <= d.level {
		return false
	}
	d.level, d.since, d.sound = to, now, false
	return true
}

// lost says that there is no device to work on, whatever the share.
func (d *degradation) lost(now time.Time) (changed bool) {
	d.since, d.sound = now, false
	return d.raise(now, OnHost)
}

// probed says whether the device that serves no shards did a known computation right. One that did not begins the quiet time anew,
// and is no operation: the share is that of what serves.
func (d *degradation) probed(now time.Time, sound bool) {
	d.sound = sound
	if !sound && d.level == OnHost {
		d.since = now
	}
}

// look goes down by one level when it is time: nothing has failed since the quiet time began, and the device that is to serve again is
// sound. What failed before is forgotten, or a level that was left would be entered again by what led there the first time.
func (d *degradation) lower(now time.Time) (changed bool) {
	if d.level == Normal || now.Sub(d.since) < d.Quiet || d.level == OnHost && !d.sound {
		return false
	}
	d.level--
	d.since, d.sound = now, false
	d.first, d.n, d.failed = 0, 0, 0
	return true
}
