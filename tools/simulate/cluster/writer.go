package cluster

import (
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/tools/simulate/station"
)

type writer struct {
	lane       *lane
	arrivals   *rand.Rand
	made, done int64    // entries that have arrived, and that are answered
	begun      int64    // entries that are packed or were
	waiting    []*entry // that have arrived
	packing    int
	ready      []*entry // packed
	appending  bool
	dead       int64 // nothing happens before this time
	used       meter // packing or appending
}

// start has the first entry arrive. Entries with a rate arrive at random times; without one they
// are there whenever the window has room.
func (w *writer) start() {
	if w.lane.m.config.Load.Rate > 0 {
		w.later()
		return
	}
	w.next()
}

func (w *writer) later() {
	m := w.lane.m
	rate := float64(m.config.Load.Rate) / float64(m.config.Shards)
	m.clock.After(int64(w.arrivals.ExpFloat64()/rate*1e9), func() {
		w.waiting = append(w.waiting, w.arrive())
		w.later()
		w.next()
	})
}

func (w *writer) arrive() *entry {
	now := w.lane.m.clock.Now()
	w.made++
	w.lane.whole.Arrive(now)
	return &entry{number: w.made, began: now, at: now}
}

func (w *writer) next() {
	m := w.lane.m
	load := m.config.Load
	for {
		busy := w.packing + len(w.ready)
		if load.Encoders == 1 && w.appending {
			busy++
		}
		if busy >= load.Encoders || load.Window > 0 && w.begun-w.done >= int64(load.Window) {
			return
		}
		if wait := w.dead - m.clock.Now(); wait > 0 {
			m.clock.After(wait, w.next)
			return
		}
		var e *entry
		switch {
		case load.Rate == 0:
			e = w.arrive()
		case len(w.waiting) > 0:
			e, w.waiting = w.waiting[0], w.waiting[1:]
		default:
			return
		}
		w.begun++
		w.pack(e)
	}
}

func (w *writer) pack(e *entry) {
	m := w.lane.m
	ns := 0.0
	if !m.config.Load.Packed {
		ns = m.stages.encode.Draw(m.rand.Float64(), float64(w.lane.home.batches), float64(m.config.Load.Rows))
	}
	w.packing++
	w.used.begin(m.clock.Now())
	m.run(w.lane.home, station.Job{Limit: 1, Group: writerProcess, Beside: true}, ns, 1, func() {
		w.used.end(m.clock.Now())
		w.packing--
		w.ready = append(w.ready, e)
		w.append()
		if m.config.Load.Encoders > 1 {
			w.next()
		}
	})
}

func (w *writer) append() {
	if w.appending || len(w.ready) == 0 {
		return
	}
	l, m := w.lane, w.lane.m
	e := w.ready[0]
	w.ready = w.ready[1:]
	w.appending = true
	idle := w.used.idle(m.clock.Now())
	w.used.begin(m.clock.Now())
	l.pass(e, partWriter)
	bytes := m.entryBytes
	m.uplink.pass(l.home, l.broker, bytes, func() {
		stored := func(int) { l.stored(e) }
		m.append(group{broker: l.broker, entries: 1, bytes: bytes, idle: idle, stored: stored, done: func() {
			m.clock.After(int64(m.config.Uplink.RTT)/2, func() { // the acknowledgement
				w.used.end(m.clock.Now())
				w.appending = false
				w.append()
				w.next()
			})
		}})
	})
}

func (w *writer) answered() {
	w.done++
	w.next()
}

// meter adds up the time in which something has work.
type meter struct {
	n          int
	since, sum int64
}

func (t *meter) begin(now int64) {
	if t.n++; t.n == 1 {
		t.since = now
	}
}

func (t *meter) end(now int64) {
	if t.n--; t.n == 0 {
		t.sum += now - t.since
	}
}

func (t *meter) share(now int64) float64 {
	sum := t.sum
	if t.n > 0 {
		sum += now - t.since
	}
	return float64(sum) / float64(max(1, now))
}

// idle returns the time without work until now over that with work.
func (t *meter) idle(now int64) float64 {
	share := max(t.share(now), 1e-6)
	return (1 - share) / share
}
