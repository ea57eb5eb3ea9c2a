package batch

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
)

// NoDecision in Decisions.Decision: the rule was not met, no candidate won.
const NoDecision = ^uint32(0)

// What became of an observation, in Decisions.Dropped.
const (
	Applied          uint8 = iota
	DroppedLate            // it was before the latest of its group that was applied
	DroppedDuplicate       // it was of the same time as that one
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
	// Dropped says which observations have changed nothing, of a swarm whose spec drops some; nil
	// of others. Their decision is NoDecision, their score and counts are 0, and their round is
	// that of the group's last decision.
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

// Encode writes the batch as an Arrow IPC stream.
func (d *Decisions) Encode() ([]byte, error) {
	n := d.Len()
	if d.Candidates < 1 || len(d.Counts) != n*d.Candidates {
		return nil, fmt.Errorf("encode decisions: %d counts for %d rows of %d candidates", len(d.Counts), n,
			d.Candidates)
	}
	values := width(d.Value, n)
	if values < 0 {
		return nil, fmt.Errorf("encode decisions: %d values for %d rows", len(d.Value), n)
	}
	counts := arrow.FixedSizeListOfNonNullable(int32(d.Candidates), arrow.PrimitiveTypes.Uint32)
	fields := []arrow.Field{
		{Name: colGroup, Type: arrow.PrimitiveTypes.Uint32},
		{Name: colRow, Type: arrow.PrimitiveTypes.Uint64},
		{Name: colRead, Type: arrow.PrimitiveTypes.Int64},
		{Name: colTimestamp, Type: arrow.BinaryTypes.String},
		{Name: colValue, Type: valueType(values)},
		{Name: colScore, Type: arrow.PrimitiveTypes.Float32},
		{Name: colDecision, Type: arrow.PrimitiveTypes.Uint32},
		{Name: colCounts, Type: counts},
		{Name: colLeader, Type: arrow.PrimitiveTypes.Uint64},
		{Name: colRound, Type: arrow.PrimitiveTypes.Uint64},
	}
	columns := []arrow.ArrayData{
		fixed(arrow.PrimitiveTypes.Uint32, d.Group),
		fixed(arrow.PrimitiveTypes.Uint64, d.Row),
		fixed(arrow.PrimitiveTypes.Int64, d.Read),
		text(d.Timestamp),
		valueColumn(values, n, d.Value),
		fixed(arrow.PrimitiveTypes.Float32, d.Score),
		fixed(arrow.PrimitiveTypes.Uint32, d.Decision),
		list(counts, arrow.PrimitiveTypes.Uint32, n, d.Counts),
		fixed(arrow.PrimitiveTypes.Uint64, d.Leader),
		fixed(arrow.PrimitiveTypes.Uint64, d.Round),
	}
	if d.Dropped != nil {
		fields = append(fields, arrow.Field{Name: colDropped, Type: arrow.PrimitiveTypes.Uint8})
		columns = append(columns, fixed(arrow.PrimitiveTypes.Uint8, d.Dropped))
	}
	return encode(schema("decisions", fields), n, columns)
}

// DecodeDecisions reads a batch. A message that is not one, whatever is in it, gives a jobs.Error
// of class jobs.CodeInvalid.
func DecodeDecisions(data []byte) (*Decisions, error) {
	d := &Decisions{}
	err := decode("decisions", data, func(r *record) {
		d.Group = column[uint32](r, colGroup)
		d.Row = column[uint64](r, colRow)
		d.Read = column[int64](r, colRead)
		d.Timestamp = texts(r, colTimestamp)
		d.Value = valuesOf(r)
		d.Score = column[float32](r, colScore)
		d.Decision = column[uint32](r, colDecision)
		d.Leader = column[uint64](r, colLeader)
		d.Round = column[uint64](r, colRound)
		d.Counts, d.Candidates = lists[uint32](r, colCounts)
		if r.get(colDropped) == nil {
			return
		}
		d.Dropped = column[uint8](r, colDropped)
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
