// Package fleet limits the alarms of a fleet: the share of false ones among those that are shown,
// or their number in a day. It also makes one incident of those in which many entities move
// together. It sees the decisions of all entities, and decides which of their incidents are shown.
package fleet

import (
	"fmt"
	"slices"
	"time"
)

const (
	// slotsOfWindow is the number of slots of a window. What is counted in a slot has an effect lag
	// slots later, so that the order of the rows of one slot changes nothing.
	slotsOfWindow = 672
	lag           = 2
	// mostSlots bounds the slots that are kept, the latest ones: 15 months of a window of 28 days.
	mostSlots = 16 * slotsOfWindow
)

// Options say what is limited.
type Options struct {
	// FalseDiscoveries is the share of the incidents shown that may be false; 0 for no limit.
	FalseDiscoveries float64 `json:"false_discoveries,omitempty"`
	// AlarmsPerDay is the number of incidents shown in a day, on average; 0 for no limit.
	AlarmsPerDay float64 `json:"alarms_per_day,omitempty"`
	// Window is the time over which incidents are counted.
	Window time.Duration `json:"window"`
	// Together is the time within which incidents of several entities are one move; 0 for never.
	Together time.Duration `json:"together,omitempty"`
	// Alarm is the surprise in nats from which the swarm opens an incident, and Block the number of
	// observations of a block of its history.
	Alarm float64 `json:"alarm"`
	Block int     `json:"block"`
}

// Bounds of options.
const (
	minWindow   = 12 * time.Minute
	minTogether = time.Second
	maxTogether = 24 * time.Hour
	maxWindow   = 10 * 365 * 24 * time.Hour
	minAlarm    = 0.01
	maxAlarm    = 100
	maxBlock    = 65536
)

// Check returns an ErrOptions for options that are out of bounds.
func (o *Options) Check() error {
	switch {
	case !(o.FalseDiscoveries >= 0 && o.FalseDiscoveries <= 0.5):
		return fmt.Errorf("%w: false_discoveries %v: use 0 to 0.5", ErrOptions, o.FalseDiscoveries)
	case !(o.AlarmsPerDay >= 0 && o.AlarmsPerDay <= 1e6):
		return fmt.Errorf("%w: alarms_per_day %v: use 0 to 1e+06", ErrOptions, o.AlarmsPerDay)
	case o.Window < minWindow || o.Window > maxWindow:
		return fmt.Errorf("%w: window %v: use %v to %v", ErrOptions, o.Window, minWindow, maxWindow)
	case o.Together != 0 && (o.Together < minTogether || o.Together > maxTogether):
		return fmt.Errorf("%w: together %v: use %v to %v", ErrOptions, o.Together, minTogether, maxTogether)
	case !(o.Alarm >= minAlarm && o.Alarm <= maxAlarm):
		return fmt.Errorf("%w: alarm %v: use %v to %v nats", ErrOptions, o.Alarm, minAlarm, maxAlarm)
	case o.Block < 1 || o.Block > maxBlock:
		return fmt.Errorf("%w: block %d: use 1 to %d", ErrOptions, o.Block, maxBlock)
	}
	return nil
}

// Decisions of the predictor.
const (
	normal     = 0
	suspicious = 1
	anomalous  = 2
)

// Control decides which incidents of a fleet are shown. What it decides of a row depends on the
// earlier rows of its entity, and on the rows of all entities in slots that are at least lag earlier.
// Slots are those of the times of rows. So the order in which entities come changes nothing, as long
// as no row comes more than a slot after rows of later times. One goroutine uses it.
type Control struct {
	o     Options
	scale scale
	state State
	moved *Move // that the last row has begun; nil for none
}

// State is what a control keeps of the fleet.
type State struct {
	Slots []Slot // in the order of their numbers
	First int64  // number of the earliest slot ever, if there was one
	Begun bool
	Bins  []Bin  // in the order of their numbers
	Moves []Move // the latest ones, in the order in which they were found
	Found uint64 // moves so far
}

// Slot counts what happened in a part of the window, all entities together.
type Slot struct {
	Number int64
	Rows   uint64
	Shown  uint32 // incidents
	Opened uint32 // incidents that belong to no move
	// Reached counts by level the incidents that reached it in this slot; nil for none.
	Reached []uint32
}

// New returns a control that has seen nothing.
func New(o Options) *Control { return &Control{o: o, scale: newScale(o)} }

// State returns the state. The caller encodes it before the next row.
func (c *Control) State() State { return c.state }

// Restore replaces the state.
func (c *Control) Restore(s State) { c.state = s }

// Decide returns the decision of a row of an entity, from that of the swarm. An incident is
// anomalous once: at its first row that lifts it to a level above the threshold of the fleet. Its
// other rows are suspicious. Of a move, the row with which it is found is anomalous, and those of
// all entities that join it are suspicious. Rows of an entity come in the order of the log.
func (c *Control) Decide(e *Entity, ns int64, score float32, decision uint32) uint32 {
	slot := c.slot(c.number(ns))
	if slot != nil {
		slot.Rows++
	}
	e.Rows++
	c.moved = nil
	bin := c.see(e, ns)
	if decision == anomalous || decision == normal {
		e.end()
	}
	if decision == anomalous {
		e.begin()
		if c.open(e, bin); e.Move == 0 && slot != nil {
			slot.Opened++
		}
	}
	if !e.Open || decision != anomalous && decision != suspicious {
		return decision
	}
	if e.Move != 0 {
		return c.ofMove(e)
	}
	if c.o.FalseDiscoveries == 0 && c.o.AlarmsPerDay == 0 {
		return decision
	}
	level := c.scale.level(e, e.rise(&c.scale, score))
	if level <= e.Level {
		return suspicious
	}
	if slot != nil {
		slot.reach(e.Level, level)
	}
	e.Level = level
	if e.Shown || int(level) <= c.threshold(ns) {
		return suspicious
	}
	e.Shown = true
	if slot != nil {
		slot.Shown++
	}
	return anomalous
}

// number returns the slot of a time.
func (c *Control) number(ns int64) int64 {
	return floor(ns, max(1, int64(c.o.Window)/slotsOfWindow))
}

// slot returns the slot with a number, a new one if there is none; nil for one that is too old.
func (c *Control) slot(n int64) *Slot {
	s := &c.state
	if last := len(s.Slots) - 1; last >= 0 && s.Slots[last].Number == n {
		return &s.Slots[last]
	}
	i, found := c.find(n)
	if found {
		return &s.Slots[i]
	}
	if !s.Begun || n < s.First {
		s.First, s.Begun = n, true
	}
	if len(s.Slots) >= mostSlots {
		if i == 0 {
			return nil
		}
		s.Slots = slices.Delete(s.Slots, 0, 1)
		i--
	}
	s.Slots = slices.Insert(s.Slots, i, Slot{Number: n})
	return &s.Slots[i]
}

// find returns the place of the slot with a number, or the place where it belongs.
func (c *Control) find(n int64) (i int, found bool) {
	return slices.BinarySearchFunc(c.state.Slots, n, func(s Slot, n int64) int {
		switch {
		case s.Number < n:
			return -1
		case s.Number > n:
			return 1
		}
		return 0
	})
}

// reach counts an incident that has risen from a level to another.
func (s *Slot) reach(from, to uint8) {
	if s.Reached == nil {
		s.Reached = make([]uint32, Levels)
	}
	for l := from; l < to; l++ {
		s.Reached[l]++
	}
}

// threshold returns the level that an incident must exceed to be shown at a time; Levels if none is
// shown.
//
// The share of false ones follows from the procedure of Benjamini and Hochberg over the window. Above
// a level there are as many false incidents as its rate makes of the rows. The threshold is the
// lowest level at which they are a small enough share of all incidents. The number in a day follows
// from the ranks: no more incidents of the window may be above the level than its days allow. Either
// way the incident in question counts too.
func (c *Control) threshold(ns int64) int {
	at := c.number(ns) - lag
	from, _ := c.find(at - slotsOfWindow + 1)
	to, _ := c.find(at + 1)
	rows, shown, reached := uint64(0), uint64(0), [Levels]uint64{}
	for i := from; i < to; i++ {
		s := &c.state.Slots[i]
		rows += s.Rows
		shown += uint64(s.Shown)
		for l, n := range s.Reached {
			reached[l] += uint64(n)
		}
	}
	if rows == 0 {
		return Levels
	}
	blocks := float64(rows) / float64(c.o.Block)
	slots := min(at-c.state.First+1, slotsOfWindow)
	days := float64(slots) * (float64(c.o.Window) / (slotsOfWindow * float64(24*time.Hour)))
	most := float64(c.o.AlarmsPerDay * days)
	if c.o.AlarmsPerDay > 0 && float64(shown+1) > most {
		return Levels
	}
	for l := range reached {
		n := float64(reached[l] + 1)
		if q := c.o.FalseDiscoveries; q > 0 && float64(blocks*c.scale.rate[l]) > float64(q*n) {
			continue
		}
		if c.o.AlarmsPerDay > 0 && n > most {
			continue
		}
		return l
	}
	return Levels
}
