// Package batch is the columnar form of observations and decisions: packed (columnpack), or an Arrow
// IPC stream of one record batch.
package batch

import (
	"fmt"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/exoswarm/exoswarm/jobs"
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

// metaKind and metaVersion are the schema metadata that say what a batch is.
const (
	metaKind    = "exoswarm.batch"
	metaVersion = "exoswarm.version"
)

func schema(kind string, fields []arrow.Field) *arrow.Schema {
	meta := arrow.NewMetadata([]string{metaKind, metaVersion}, []string{kind, strconv.Itoa(jobs.Version)})
	return arrow.NewSchema(fields, &meta)
}

func observationFields(width, values int) []arrow.Field {
	return []arrow.Field{
		{Name: colGroup, Type: arrow.PrimitiveTypes.Uint32},
		{Name: colRow, Type: arrow.PrimitiveTypes.Uint64},
		{Name: colTime, Type: arrow.PrimitiveTypes.Int64},
		{Name: colRead, Type: arrow.PrimitiveTypes.Int64},
		{Name: colTimestamp, Type: arrow.BinaryTypes.String},
		{Name: colValue, Type: valueType(values)},
		{Name: colFeatures, Type: arrow.FixedSizeListOfNonNullable(int32(width), arrow.PrimitiveTypes.Float32)},
	}
}

// Encode writes the batch as an Arrow IPC stream.
func (o *Observations) Encode() ([]byte, error) {
	if o.Width < 1 || len(o.Features) != o.Len()*o.Width {
		return nil, fmt.Errorf("encode observations: %d features for %d rows of width %d", len(o.Features), o.Len(),
			o.Width)
	}
	n := o.Len()
	values := width(o.Value, n)
	if values < 0 || values > 1 && values != o.Width {
		return nil, fmt.Errorf("encode observations: %d values for %d rows of width %d", len(o.Value), n, o.Width)
	}
	s := schema("observations", observationFields(o.Width, values))
	return encode(s, n, []arrow.ArrayData{
		fixed(arrow.PrimitiveTypes.Uint32, o.Group),
		fixed(arrow.PrimitiveTypes.Uint64, o.Row),
		fixed(arrow.PrimitiveTypes.Int64, o.Time),
		fixed(arrow.PrimitiveTypes.Int64, o.Read),
		text(o.Timestamp),
		valueColumn(values, n, o.Value),
		list(s.Field(6).Type, arrow.PrimitiveTypes.Float32, n, o.Features),
	})
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

// valueType is the type of a column of so many values a row: one is no list.
func valueType(width int) arrow.DataType {
	if width == 1 {
		return arrow.PrimitiveTypes.Float64
	}
	return arrow.FixedSizeListOfNonNullable(int32(width), arrow.PrimitiveTypes.Float64)
}

func valueColumn(width, rows int, values []float64) arrow.ArrayData {
	if width == 1 {
		return fixed(arrow.PrimitiveTypes.Float64, values)
	}
	return list(valueType(width), arrow.PrimitiveTypes.Float64, rows, values)
}

// valuesOf reads the column that valueColumn makes.
func valuesOf(r *record) []float64 {
	if _, is := r.get(colValue).(*array.FixedSizeList); is {
		values, _ := lists[float64](r, colValue)
		return values
	}
	return column[float64](r, colValue)
}

// DecodeObservations reads a batch that Pack or Encode wrote. A message that is not one, whatever is
// in it, gives a jobs.Error of class jobs.CodeInvalid or jobs.CodeVersion.
func DecodeObservations(data []byte) (*Observations, error) {
	o := &Observations{}
	if isPacked(data) {
		if err := o.unpack(data); err != nil {
			return nil, err
		}
		return o, nil
	}
	err := decode("observations", data, func(r *record) {
		o.Features, o.Width = lists[float32](r, colFeatures)
		o.Group = column[uint32](r, colGroup)
		o.Row = column[uint64](r, colRow)
		o.Time = column[int64](r, colTime)
		o.Read = column[int64](r, colRead)
		o.Value = valuesOf(r)
		if w := width(o.Value, len(o.Group)); w > 1 && w != o.Width {
			r.fail("column %q has %d values a row, column %q %d", colValue, w, colFeatures, o.Width)
		}
		o.Timestamp = texts(r, colTimestamp)
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

func texts(r *record, name string) []string {
	a, ok := r.get(name).(*array.String)
	if !ok {
		r.fail("column %q is %v, want utf8", name, r.typeOf(name))
		return nil
	}
	out := make([]string, a.Len())
	for i := range out {
		out[i] = a.Value(i)
	}
	return out
}
