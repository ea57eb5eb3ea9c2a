package batch

// NoDecision in Decisions.Decision: the rule was not met, no candidate won.
const NoDecision = ^uint32(0)

// What became of an observation, in Decisions.Dropped.
const (
	Applied          uint8 = iota
	DroppedLate            // it was before the latest of its group that was applied
	DroppedDuplicate       // it has the same time as the latest
)

// Reasons is how outputs and metrics call what became of an observation: nothing, where it was
// applied.
var Reasons = [...]string{Applied: "", DroppedLate: "late", DroppedDuplicate: "duplicate"}

// Decisions is a batch of decisions, one a row, in the order of the observations that they answer.
// Slices that come from DecodeDecisions share memory with the message they were decoded from and
// must not be changed.
type Decisions struct {
	// Copied from the observation; Value has all features of a row, or the first alone.
	Group     []uint32
	Row       []uint64
	Read      []int64
	Timestamp []string
	Value     []float64

	Score    []float32 // how unusual the observation is, in [0,1]
	Decision []uint32  // index of the winning candidate, or NoDecision
	// Counts are the weighted votes, Candidates values a row, row by row.
	Counts     []uint32
	Candidates int
	Leader     []uint64 // agent id inside the swarm
	Round      []uint64 // of the group, from 1
	// Dropped has what became of each observation, for a swarm whose spec drops some; nil for other
	// swarms. A dropped observation has NoDecision, score and counts 0, and the round of the
	// group's last decision.
	Dropped []uint8
	// Explained says why; nil where nobody has asked. It is not encoded.
	Explained *Explained
}

// Len is the number of decisions.
func (d *Decisions) Len() int { return len(d.Group) }

// Feature returns feature number f of row i. It reports false where the batch has the first feature
// alone.
func (d *Decisions) Feature(i, f int) (v float64, ok bool) {
	w := width(d.Value, d.Len())
	if f >= w {
		return 0, false
	}
	return d.Value[i*w+f], true
}

// layout lists the columns without dropped, which only some batches have.
func (d *Decisions) layout() layout {
	return layout{"decisions", d.Len(), []column{
		scalars(colGroup, &d.Group), scalars(colRow, &d.Row), scalars(colRead, &d.Read),
		texts(colTimestamp, &d.Timestamp), values(&d.Value), scalars(colScore, &d.Score),
		scalars(colDecision, &d.Decision), vectors(colCounts, &d.Counts, &d.Candidates),
		scalars(colLeader, &d.Leader), scalars(colRound, &d.Round),
	}}
}

// Encode writes the batch as an Arrow IPC stream.
func (d *Decisions) Encode() ([]byte, error) {
	l := d.layout()
	if d.Dropped != nil {
		l.columns = append(l.columns, scalars(colDropped, &d.Dropped))
	}
	return l.encode()
}

// DecodeDecisions reads a batch. A message that is not one, whatever is in it, gives a jobs.Error
// of class jobs.CodeInvalid.
func DecodeDecisions(data []byte) (*Decisions, error) {
	d := &Decisions{}
	err := d.layout().decode(data, func(r *record) {
		if r.get(colDropped) == nil {
			return
		}
		d.Dropped = numbers[uint8](r, colDropped)
		for i, why := range d.Dropped {
			if why > DroppedDuplicate || why != Applied && d.Decision[i] != NoDecision {
				r.fail("row %d was dropped for reason %d, with decision %d", i, why, d.Decision[i])
				return
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}
