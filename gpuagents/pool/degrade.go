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

type sample struct {
	at     time.Time
	failed bool
}

// degradation computes the level of a device from the results of operations. The level rises at
// once, and falls by one after a quiet time. It has no clock: times are arguments and do not go
// backwards. One goroutine uses it at a time.
type degradation struct {
	Patience
	level   Level
	samples [windowOps]sample // a ring
	first   int               // the oldest
	n       int               // samples in the window
	failed  int               // failed samples
	since   time.Time         // time of the last failure or change of level
	sound   bool              // the device has passed a probe since then
}

func (d *degradation) forget() {
	if d.samples[d.first].failed {
		d.failed--
	}
	d.first = (d.first + 1) % windowOps
	d.n--
}

func (d *degradation) expire(now time.Time) {
	for d.n > 0 && now.Sub(d.samples[d.first].at) > d.Window {
		d.forget()
	}
}

// share returns the failures and the operations of the window that ends now.
func (d *degradation) share(now time.Time) (failed, of int) {
	d.expire(now)
	return d.failed, max(d.n, leastOps)
}

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

func (d *degradation) raise(now time.Time, to Level) (changed bool) {
	if to <= d.level {
		return false
	}
	d.level, d.since, d.sound = to, now, false
	return true
}

// lost records that there is no device to work on, however few operations failed.
func (d *degradation) lost(now time.Time) (changed bool) {
	d.since, d.sound = now, false
	return d.raise(now, OnHost)
}

// probed records the result of a probe of the device while it serves no shards. A failed probe
// restarts the quiet time. A probe is no operation: only operations of the serving device count.
func (d *degradation) probed(now time.Time, sound bool) {
	d.sound = sound
	if !sound && d.level == OnHost {
		d.since = now
	}
}

// lower lowers the level by one after the quiet time; from OnHost the device must also have passed
// a probe. Earlier failures are forgotten, since they would raise the level again.
func (d *degradation) lower(now time.Time) (changed bool) {
	if d.level == Normal || now.Sub(d.since) < d.Quiet || d.level == OnHost && !d.sound {
		return false
	}
	d.level--
	d.since, d.sound = now, false
	d.first, d.n, d.failed = 0, 0, 0
	return true
}
