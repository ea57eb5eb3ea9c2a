// Package station is the engine of a discrete-event simulation: a clock with a heap of events, and
// stations at which jobs wait and are served. It draws nothing at random; callers do. Equal calls
// have equal results. Nothing here is safe for concurrent use.
package station

import "container/heap"

// Clock is the time of a simulation, in nanoseconds from 0 on, and its future events. The zero
// value is ready.
type Clock struct {
	now    int64
	made   uint64
	events events
}

// event is a call at a time. Events of one time happen in the order in which they were made.
type event struct {
	at   int64
	made uint64
	call func()
}

// Now returns the time.
func (c *Clock) Now() int64 { return c.now }

// After has call called after some nanoseconds. Negative ones count as none.
func (c *Clock) After(ns int64, call func()) {
	c.made++
	heap.Push(&c.events, event{at: c.now + max(0, ns), made: c.made, call: call})
}

// Run makes all events up to a time, and then sets the clock to it. It returns how many it made.
func (c *Clock) Run(until int64) (n int64) {
	for len(c.events) > 0 && c.events[0].at <= until {
		e := heap.Pop(&c.events).(event)
		c.now = e.at
		e.call()
		n++
	}
	c.now = max(c.now, until)
	return n
}

// events is a heap for container/heap.
type events []event

func (e events) Len() int { return len(e) }

func (e events) Less(i, j int) bool {
	if e[i].at != e[j].at {
		return e[i].at < e[j].at
	}
	return e[i].made < e[j].made
}

func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }

func (e *events) Push(x any) { *e = append(*e, x.(event)) }

func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{} // releases the call
	*e = (*e)[:last]
	return x
}
