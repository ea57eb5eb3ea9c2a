package explain

// FleetEntity is what a control keeps of an entity: its open incident, and how often and how much
// it surprised before.
type FleetEntity struct {
	Rows      uint32  // recent observations, decayed
	Incidents uint32  // that the swarm opened in these, and that have ended
	Below     uint32  // incidents whose height is below mostHeight
	Heights   uint32  // sum of their heights, each at most mostHeight, in units of 1/heightUnit
	Open      bool    // an incident lasts
	Shown     bool    // and is shown
	Level     uint8   // and is above this number of levels
	Loud      uint32  // rows of the incident with a surprise of loudNats
	Top       float64 // how much rarer than the alarm its largest surprise is, in nats
	Began     int64   // bin in which it opened, where moves are watched
	Seen      int64   // bin of the last observation, where moves are watched
	Move      uint64  // number of the move that the open incident belongs to; 0 for none
	Member    uint64  // number of the last move that the entity took part in; 0 for none
}

const (
	heightUnit = 256
	// mostHeight bounds what an incident adds to the heights of its entity: a real one must not make
	// the next one seem usual.
	mostHeight = 2
	// trust is the number of incidents of an entity that weigh as much as what is expected of all.
	trust = 5
	// An entity counts as at least leastOften times as frequent, and leastSize times as high, as
	// expected: what was quiet for a month may have been lucky.
	leastOften, leastSize = 0.5, 0.7
	// forgetRows is the number of observations after which what was counted of an entity is halved.
	forgetRows = 28000
)

func (e *FleetEntity) begin() {
	e.Open, e.Shown, e.Level, e.Loud, e.Top, e.Move = true, false, 0, 0, 0, 0
}

func (e *FleetEntity) join(number uint64) { e.Move, e.Member = number, number }

// end counts the open incident, if there is one. An incident of a move tells nothing about the
// entity.
func (e *FleetEntity) end() {
	if e.Move != 0 {
		e.Open, e.Move = false, 0
	}
	if e.Open {
		height := min(height(e.Top, e.Loud), mostHeight)
		e.Incidents++
		e.Heights += uint32(height * heightUnit)
		if height < mostHeight {
			e.Below++
		}
		e.Open = false
	}
	if e.Rows >= forgetRows {
		e.Rows, e.Incidents, e.Heights, e.Below = e.Rows/2, e.Incidents/2, e.Heights/2, e.Below/2
	}
}

// rise adds a row to the open incident, and returns its height.
func (e *FleetEntity) rise(s *scale, score float32) float64 {
	nats := s.nats(score)
	e.Top = max(e.Top, Rarity(nats)-s.base)
	if nats >= loudNats {
		e.Loud++
	}
	return height(e.Top, e.Loud)
}
