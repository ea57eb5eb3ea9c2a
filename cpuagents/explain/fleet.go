package explain

import (
	"cmp"
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

// FleetLimits limit the alarms of a fleet: the share of false ones among the incidents that are
// shown, or their number in a day. A Control sees the decisions of all entities, decides which of
// their incidents are shown, and makes one incident of the incidents in which many entities move
// together.
type FleetLimits struct {
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

// Bounds of FleetLimits.
const (
	minWindow   = 12 * time.Minute
	minTogether = time.Second
	maxTogether = 24 * time.Hour
	maxWindow   = 10 * 365 * 24 * time.Hour
	minAlarm    = 0.01
	maxAlarm    = 100
	maxBlock    = 65536
)

// Check returns an ErrLimits for options that are out of bounds.
func (o *FleetLimits) Check() error {
	switch {
	case !(o.FalseDiscoveries >= 0 && o.FalseDiscoveries <= 0.5):
		return fmt.Errorf("%w: false_discoveries %v: use 0 to 0.5", ErrLimits, o.FalseDiscoveries)
	case !(o.AlarmsPerDay >= 0 && o.AlarmsPerDay <= 1e6):
		return fmt.Errorf("%w: alarms_per_day %v: use 0 to 1e+06", ErrLimits, o.AlarmsPerDay)
	case o.Window < minWindow || o.Window > maxWindow:
		return fmt.Errorf("%w: window %v: use %v to %v", ErrLimits, o.Window, minWindow, maxWindow)
	case o.Together != 0 && (o.Together < minTogether || o.Together > maxTogether):
		return fmt.Errorf("%w: together %v: use %v to %v", ErrLimits, o.Together, minTogether, maxTogether)
	case !(o.Alarm >= minAlarm && o.Alarm <= maxAlarm):
		return fmt.Errorf("%w: alarm %v: use %v to %v nats", ErrLimits, o.Alarm, minAlarm, maxAlarm)
	case o.Block < 1 || o.Block > maxBlock:
		return fmt.Errorf("%w: block %d: use 1 to %d", ErrLimits, o.Block, maxBlock)
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
// earlier rows of its entity, and on the rows of all entities in slots that are at least lag
// earlier. A slot is a time of rows, not of their arrival. So the order in which entities come
// changes nothing, as long as no row comes more than a slot after rows of later times. One
// goroutine uses it.
type Control struct {
	o     FleetLimits
	scale scale
	state ControlState
	moved *Move // that the last row has begun; nil for none
}

// ControlState is what a control keeps of the fleet.
type ControlState struct {
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

// NewControl returns a control that has seen nothing.
func NewControl(o FleetLimits) *Control { return &Control{o: o, scale: newScale(o)} }

// State returns the state. The caller encodes it before the next row.
func (c *Control) State() ControlState { return c.state }

// Restore replaces the state.
func (c *Control) Restore(s ControlState) { c.state = s }

// Decide returns the decision of a row of an entity, from the decision of the swarm. An incident is
// anomalous once: at its first row that lifts it to a level above the threshold of the fleet. Its
// other rows are suspicious. In a move, the row that reveals it is anomalous, and the rows of all
// entities that join it are suspicious. Rows of an entity come in the order of the log.
func (c *Control) Decide(e *FleetEntity, ns int64, score float32, decision uint32) uint32 {
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

func (c *Control) number(ns int64) int64 {
	return floor(ns, max(1, int64(c.o.Window)/slotsOfWindow))
}

// slot returns the slot with a number, a new one if there is none; nil for one that is too old.
func (c *Control) slot(n int64) *Slot {
	s := &c.state
	if !s.Begun || n < s.First {
		s.First, s.Begun = n, true
	}
	return numbered(&s.Slots, n, mostSlots, slotNumber)
}

func slotNumber(s *Slot) *int64 { return &s.Number }

// find returns the place of the slot with a number, or the place where it belongs.
func (c *Control) find(n int64) (i int, found bool) { return placeOf(c.state.Slots, n, slotNumber) }

// numbered returns the element of a sorted list with a number, a new one if there is none. Beyond
// most elements a new element replaces the first; the result is nil for a number before it.
func numbered[T any](list *[]T, n int64, most int, number func(*T) *int64) *T {
	all := *list
	if last := len(all) - 1; last >= 0 && *number(&all[last]) == n {
		return &all[last]
	}
	i, found := placeOf(all, n, number)
	if found {
		return &all[i]
	}
	if len(all) >= most {
		if i == 0 {
			return nil
		}
		all = slices.Delete(all, 0, 1)
		i--
	}
	var fresh T
	*number(&fresh) = n
	*list = slices.Insert(all, i, fresh)
	return &(*list)[i]
}

func placeOf[T any](all []T, n int64, number func(*T) *int64) (i int, found bool) {
	return slices.BinarySearchFunc(all, n, func(e T, n int64) int { return cmp.Compare(*number(&e), n) })
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
// The share of false ones follows from the procedure of Benjamini and Hochberg over the window. The
// number of false incidents above a level is its rate times the number of rows. The threshold is
// the lowest level at which their share of all incidents is small enough. The number in a day
// follows from the ranks: no more incidents of the window may be above the level than its days
// allow. Either way the incident in question counts too.
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
