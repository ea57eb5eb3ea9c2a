// Package batch is the columnar form of observations and decisions. Observations travel packed
// (Observations.Pack). Answers are Arrow IPC streams of one record batch. The decoders of
// observations take such streams too, which other clients and earlier versions write.
package batch

import (
	"fmt"
)

// Observations is a batch of observations, one a row. Slices that come from Decode share memory
// with the message they were decoded from and must not be changed.
type Observations struct {
	Group []uint32 // the group that the observation is for
	Row   []uint64 // its number in its source, from 1
	Time  []int64  // when it was observed, unix nanoseconds
	Read  []int64  // when the source read it, unix nanoseconds by the source's clock
	// Features are what the agents see: Width values a row, row by row.
	Features []float32
	Width    int
	// Timestamp and Value travel through to the decision unchanged: the timestamp as the source
	// wrote it, and the features in full precision, Width values a row. Batches of earlier versions
	// have the first feature alone, one value a row.
	Timestamp []string
	Value     []float64
}

// Len is the number of observations.
func (o *Observations) Len() int { return len(o.Group) }

// Doubles returns the features of the rows from one to another in 64 bits: the values, where the
// features are these in 32 bits, else the features.
func (o *Observations) Doubles(from, to int) []float64 {
	x := make([]float64, (to-from)*o.Width)
	own := len(o.Value) != len(o.Features)
	for i, f := range o.Features[from*o.Width : to*o.Width] {
		x[i] = float64(f)
		if own {
			continue
		}
		if v := o.Value[from*o.Width+i]; float32(v) == f {
			x[i] = v
		}
	}
	return x
}

// Reset empties o and keeps its memory.
func (o *Observations) Reset() {
	o.Group, o.Row, o.Time, o.Read = o.Group[:0], o.Row[:0], o.Time[:0], o.Read[:0]
	o.Features, o.Timestamp, o.Value = o.Features[:0], o.Timestamp[:0], o.Value[:0]
}

// Names of the columns of both kinds of batch.
const (
	colGroup     = "group"
	colRow       = "row"
	colTime      = "time"
	colRead      = "read"
	colFeatures  = "features"
	colTimestamp = "timestamp"
	colValue     = "value"
	colScore     = "score"
	colDecision  = "decision"
	colCounts    = "counts"
	colLeader    = "leader"
	colRound     = "round"
	colDropped   = "dropped"
)

func (o *Observations) layout() layout {
	return layout{"observations", o.Len(), []column{
		scalars(colGroup, &o.Group), scalars(colRow, &o.Row), scalars(colTime, &o.Time), scalars(colRead, &o.Read),
		texts(colTimestamp, &o.Timestamp), values(&o.Value), vectors(colFeatures, &o.Features, &o.Width),
	}}
}

// Encode writes the batch as an Arrow IPC stream, for readers that do not know packed batches.
func (o *Observations) Encode() ([]byte, error) {
	if o.Width < 1 || len(o.Features) != o.Len()*o.Width {
		return nil, fmt.Errorf("encode observations: %d features for %d rows of width %d", len(o.Features), o.Len(),
			o.Width)
	}
	if v := width(o.Value, o.Len()); v > 1 && v != o.Width {
		return nil, fmt.Errorf("encode observations: %d values for %d rows of width %d", len(o.Value), o.Len(), o.Width)
	}
	return o.layout().encode()
}

// width is how many of the values a row has, at least 1; -1 when it is not the same for all.
func width(values []float64, rows int) int {
	switch {
	case rows == 0 && len(values) == 0:
		return 1
	case rows == 0 || len(values) == 0 || len(values)%rows != 0:
		return -1
	}
	return len(values) / rows
}

// DecodeObservations reads a batch that Pack or Encode wrote. A message that is not one, whatever
// is in it, gives a jobs.Error of class jobs.CodeInvalid or jobs.CodeVersion.
func DecodeObservations(data []byte) (*Observations, error) {
	o := &Observations{}
	if isPacked(data) {
		if err := o.unpack(data); err != nil {
			return nil, err
		}
		return o, nil
	}
	err := o.layout().decode(data, func(r *record) {
		if w := width(o.Value, len(o.Group)); w > 1 && w != o.Width {
			r.fail("column %q has %d values a row, column %q %d", colValue, w, colFeatures, o.Width)
		}
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}
