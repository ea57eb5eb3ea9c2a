package control

import "time"

// serverClock estimates the time of the server from the stamps that the server puts on messages.
// The estimate is the server's time or a little before, so tokens never refill too early.
type serverClock struct {
	start time.Time     // a local time; the zero of elapsed
	ahead time.Duration // the server's clock is ahead of the local one by at least this
	at    time.Duration // elapsed when ahead was last measured
}

// maxDrift is the largest relative drift of two clocks: 1 in 5,000 (200 ppm), more than a quartz
// has.
const maxDrift = 5000

// elapsed is the local time since the start. It does not depend on changes of the wall clock.
func (c *serverClock) elapsed() time.Duration { return time.Since(c.start) }

// now returns the time of the server, or a little before.
func (c *serverClock) now() time.Time {
	here := c.elapsed()
	return c.start.Round(0).Add(here + c.ahead - (here-c.at)/maxDrift)
}

// observe learns from a time that the server's clock has shown. An earlier time than now changes
// nothing, because the message may have been on its way for long.
func (c *serverClock) observe(stamp time.Time) {
	if !stamp.After(c.now()) {
		return
	}
	c.ahead = stamp.Sub(c.start.Round(0)) - c.elapsed()
	c.at = c.elapsed()
}
