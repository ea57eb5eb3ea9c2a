package rows

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// columnRows is how many rows a record batch or row group of the output has: what readers take at a
// time, and a few megabytes of memory here.
const columnRows = 64 << 10

// columnEncoder writes Arrow IPC files and Parquet files of flat columns. All columns are required:
// a missing feature is NaN, and a dropped observation has the reason in a separate column.
//
// A spooled decision has, little-endian: row, round and leader (uint64), score (float32), decision
// (uint32), the features (float64), the counts (uint32), the reason of a drop (uint32), the group
// of an entity (uint32), an explanation, and the timestamp behind its length (uint32). An
// explanation has the numbers of BandColumns (float64), feature, direction and kind (uint8 each,
// and a zero), and the earlier incidents (uint32).
type columnEncoder struct {
	Layout
	rows   string // arrow or parquet
	schema *arrow.Schema
	build  *array.RecordBuilder
	names  int           // columns before row and timestamp
	held   int           // rows in build
	in     *bufio.Reader // of Piece
	out    interface {
		Write(arrow.RecordBatch) error
		Close() error
	}
}

// newColumnEncoder returns an encoder of Arrow or Parquet. The columns have the order of CSV.
func newColumnEncoder(rows string, l Layout) *columnEncoder {
	var fields []arrow.Field
	for _, name := range l.NameColumns() {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String})
	}
	names := len(fields)
	fields = append(fields,
		arrow.Field{Name: "row", Type: arrow.PrimitiveTypes.Uint64},
		arrow.Field{Name: "timestamp", Type: arrow.BinaryTypes.String},
	)
	for _, name := range l.FeatureColumns() {
		fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Float64})
	}
	fields = append(fields,
		arrow.Field{Name: "score", Type: arrow.PrimitiveTypes.Float32},
		arrow.Field{Name: "decision", Type: arrow.BinaryTypes.String},
		arrow.Field{Name: "round", Type: arrow.PrimitiveTypes.Uint64},
		arrow.Field{Name: "leader", Type: arrow.PrimitiveTypes.Uint64},
	)
	for _, c := range l.Candidates {
		fields = append(fields, arrow.Field{Name: CountColumn(c), Type: arrow.PrimitiveTypes.Uint32})
	}
	if l.Drops {
		fields = append(fields, arrow.Field{Name: DroppedColumn, Type: arrow.BinaryTypes.String})
	}
	if l.Explain {
		for _, name := range l.BandColumns() {
			fields = append(fields, arrow.Field{Name: name, Type: arrow.PrimitiveTypes.Float64})
		}
		for _, name := range explainedColumns[3:6] {
			fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String})
		}
		fields = append(fields, arrow.Field{Name: BeforeColumn, Type: arrow.PrimitiveTypes.Uint32})
	}
	return &columnEncoder{Layout: l, rows: rows, schema: arrow.NewSchema(fields, nil), names: names}
}

// Spool implements Encoder: the numbers in fixed places, then the text of the timestamp behind its
// length.
func (e *columnEncoder) Spool(b []byte, d *batch.Decisions, i int) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, d.Row[i])
	b = le.AppendUint64(b, d.Round[i])
	b = le.AppendUint64(b, d.Leader[i])
	b = le.AppendUint32(b, math.Float32bits(d.Score[i]))
	b = le.AppendUint32(b, d.Decision[i])
	for f := range e.Features {
		v, ok := d.Feature(i, f)
		if !ok {
			v = math.NaN()
		}
		b = le.AppendUint64(b, math.Float64bits(v))
	}
	for c := range e.Candidates {
		b = le.AppendUint32(b, d.Counts[i*d.Candidates+c])
	}
	why := uint32(batch.Applied)
	if d.Dropped != nil {
		why = uint32(d.Dropped[i])
	}
	b = le.AppendUint32(b, why)
	if len(e.Keys) > 0 {
		b = le.AppendUint32(b, d.Group[i])
	}
	if e.Explain {
		for f := range e.Features {
			for _, v := range Band(d, i, f) {
				b = le.AppendUint64(b, math.Float64bits(v))
			}
		}
		why := d.Explained
		b = append(b, byte(why.Fault[i]), byte(why.Side[i]), byte(why.Kind[i]), 0)
		b = le.AppendUint32(b, why.Before[i])
	}
	b = le.AppendUint32(b, uint32(len(d.Timestamp[i])))
	return append(b, d.Timestamp[i]...)
}

func (e *columnEncoder) Begin(w io.Writer) (err error) {
	e.build = array.NewRecordBuilder(memory.NewGoAllocator(), e.schema)
	w = plainWriter{w} // hides a Close of the output from the libraries
	if e.rows == "arrow" {
		e.out, err = ipc.NewFileWriter(w, ipc.WithSchema(e.schema))
		return err
	}
	e.out, err = newParquetWriter(w, e.schema)
	return err
}

// Piece implements Encoder. Rows collect in the builder across pieces, so a batch may contain
// several series, and its size does not depend on the pieces.
func (e *columnEncoder) Piece(series int, r io.Reader) error {
	if e.in == nil {
		e.in = bufio.NewReaderSize(nil, 64<<10)
	}
	in := e.in
	in.Reset(r)
	le := binary.LittleEndian
	values := 32 // where the features begin in b
	counts := values + 8*len(e.Features)
	dropped := counts + 4*len(e.Candidates)
	bands := dropped + 4
	if len(e.Keys) > 0 {
		bands += 4
	}
	size := bands + 4
	if e.Explain {
		size += 24*len(e.Features) + 8
	}
	b := make([]byte, size)
	names := e.FeatureColumns()
	firstFeature := e.names + 2
	var stamp []byte
	for {
		if _, err := io.ReadFull(in, b); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read the spool: %w", err)
		}
		stamp = append(stamp[:0], make([]byte, le.Uint32(b[len(b)-4:]))...)
		if _, err := io.ReadFull(in, stamp); err != nil {
			return fmt.Errorf("read the spool: %w", err)
		}
		name := NoDecision
		if c := le.Uint32(b[28:]); c != batch.NoDecision {
			name = e.Candidates[c]
		}
		if len(e.Keys) > 0 {
			series = int(le.Uint32(b[dropped+4:]))
		}
		for i, name := range e.Names(series) {
			e.build.Field(i).(*array.StringBuilder).Append(strings.ToValidUTF8(name, "\uFFFD"))
		}
		e.build.Field(e.names).(*array.Uint64Builder).Append(le.Uint64(b))
		e.build.Field(e.names + 1).(*array.StringBuilder).BinaryBuilder.Append(stamp)
		for f := range e.Features {
			e.build.Field(firstFeature + f).(*array.Float64Builder).Append(
				math.Float64frombits(le.Uint64(b[values+8*f:])),
			)
		}
		at := firstFeature + len(e.Features) // the next column
		e.build.Field(at).(*array.Float32Builder).Append(math.Float32frombits(le.Uint32(b[24:])))
		e.build.Field(at + 1).(*array.StringBuilder).Append(name)
		e.build.Field(at + 2).(*array.Uint64Builder).Append(le.Uint64(b[8:]))
		e.build.Field(at + 3).(*array.Uint64Builder).Append(le.Uint64(b[16:]))
		for c := range e.Candidates {
			e.build.Field(at + 4 + c).(*array.Uint32Builder).Append(le.Uint32(b[counts+4*c:]))
		}
		if e.Drops {
			e.build.Field(at + 4 + len(e.Candidates)).(*array.StringBuilder).Append(
				batch.Reasons[le.Uint32(b[dropped:])],
			)
		}
		if e.Explain {
			e.explained(b[bands:], names)
		}
		if e.held++; e.held == columnRows {
			if err := e.flush(); err != nil {
				return err
			}
		}
	}
}

// explained appends a spooled explanation to the last columns. names are the names of the features.
func (e *columnEncoder) explained(b []byte, names []string) {
	le := binary.LittleEndian
	bands := 3 * len(names)
	at := e.build.Schema().NumFields() - bands - 4
	for k := range bands {
		e.build.Field(at + k).(*array.Float64Builder).Append(math.Float64frombits(le.Uint64(b[8*k:])))
	}
	b = b[8*bands:]
	feature := ""
	if f := int8(b[0]); f >= 0 {
		feature = names[f]
	}
	for k, text := range []string{feature, batch.Sides[int8(b[1])], batch.Surprise(b[2]).String()} {
		e.build.Field(at + bands + k).(*array.StringBuilder).Append(text)
	}
	e.build.Field(at + bands + 3).(*array.Uint32Builder).Append(le.Uint32(b[4:]))
}

// flush writes the collected rows as one record batch or row group; nothing if there are none.
func (e *columnEncoder) flush() error {
	if e.held == 0 {
		return nil
	}
	e.held = 0
	rec := e.build.NewRecordBatch()
	defer rec.Release()
	return e.out.Write(rec)
}

// End implements Encoder. It writes the last rows and the footer, and releases the builder also
// after an error.
func (e *columnEncoder) End() error {
	err := e.flush()
	e.build.Release()
	return errors.Join(err, e.out.Close())
}
