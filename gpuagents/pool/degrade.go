package pool

import (
	"fmt"
	"time"
)

// Level is how far work is cut down because a device fails. A higher level is worse.
type Level int

// The levels, by the part of the operations of the last minute that failed on the device.
const (
	Normal    Level = iota // below 1 %
	Reduced                // from 1 %: batches are split into smaller launches
	OnHost                 // from 5 %: the host device serves the shards
	Emergency              // from 10 %: shards are given back, and no shard is accepted
)

// levelNames are the levels in the registry, in logs and in scenarios.
var levelNames = [...]string{"normal", "reduced", "host", "emergency"}

// String implements fmt.Stringer.
func (l Level) String() string {
	if l < 0 || int(l) >= len(levelNames) {
		return fmt.Sprintf("level(%d)", int(l))
	}
	return levelNames[l]
}

// Patience sets how long failures count, and how slowly a device returns to a better level. The
// zero value has the defaults.
type Patience struct {
	// Window is the time in which failures are counted; 0: one minute.
	Window time.Duration
	// Quiet is the time without failures after which a device returns to the level below; 0: 30 s.
	Quiet time.Duration
	// Probe is the time between two probes of a device that serves no shards; 0: 5 s.
	Probe time.Duration
	// Now is the clock of the window and the quiet time; nil: time.Now.
	Now func() time.Time
}

// withDefaults sets the times that are 0, and the clock.
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
	// windowOps bounds the operations in the window: at thousands of entries a second, a minute
	// says little about the device as it is now.
	windowOps = 1000
	// leastOps is the least number of operations that failures are related to. One failure is then
	// 1 %, so that an idle agent does not enter Emergency by the only entry of its minute; that
	// takes ten failures.
	leastOps = 100
)

// sample is the result of an operation.
type sample struct {
	at     time.Time
	failed bool
}

// degradation is the level of a device as a function of the results of operations. It rises at
// once, and falls by one level after a quiet time. It has no clock: times are arguments and do not
// go backwards. One goroutine uses it at a time.
type degradation struct {
	Patience
	level   Level
	samples [windowOps]sample // a ring
	first   int               // the oldest
	n       int               // samples in the window
	failed  int               // of those
	since   time.Time         // the last failure or change of level
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

// expire drops samples that are older than the window.
func (d *degradation) expire(now time.Time) {
	for d.n > 0 && now.Sub(d.samples[d.first].at) > d.Window {
		d.forget()
	}
}

// share returns how many operations of how many failed in the window that ends now.
func (d *degradation) share(now time.Time) (failed, of int) {
	d.expire(now)
	return d.failed, max(d.n, leastOps)
}

// levelOf returns the level for a number of failures.
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

// done counts an operation, and reports whether the level has changed.
func (d *degradation) done(now time.Time, failed bool) (changed bool) {
	d.expire(now)
	if d.n == windowOps {
		d.forget()
	}
	d.samples[(d.first+d.n)%windowOps] = sample{now, failed}
	d.n++
	if !failed {
		return false // a success raises no level
	}
	d.failed++
	d.since, d.sound = now, false
	return d.raise(now, levelOf(d.share(now)))
}

// raise changes to a higher level, and reports whether the level has changed.
func (d *degradation) raise(now time.Time, to Level) (changed bool) {
	if to <= d.level {
		return false
	}
	d.level, d.since, d.sound = to, now, false
	return true
}

// lost notes that there is no device to work on, whatever its failures were.
func (d *degradation) lost(now time.Time) (changed bool) {
	d.since, d.sound = now, false
	return d.raise(now, OnHost)
}

// probed notes whether the device that serves no shards has passed a probe. A failed probe restarts
// the quiet time. It is no operation: those of the serving device count.
func (d *degradation) probed(now time.Time, sound bool) {
	d.sound = sound
	if !sound && d.level == OnHost {
		d.since = now
	}
}

// lower changes to the level below when the quiet time is over and, from OnHost, the device has
// passed a probe. It forgets earlier failures, which would raise the level again.
func (d *degradation) lower(now time.Time) (changed bool) {
	if d.level == Normal || now.Sub(d.since) < d.Quiet || d.level == OnHost && !d.sound {
		return false
	}
	d.level--
	d.since, d.sound = now, false
	d.first, d.n, d.failed = 0, 0, 0
	return true
}
