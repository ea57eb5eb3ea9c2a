package cpuagents

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

// columnRows is how many rows a record batch or row group of the output has: what readers take at a time, and a few
// megabytes of memory here.
const columnRows = 64 << 10

// columnEncoder writes Arrow IPC files and Parquet files of flat columns.
type columnEncoder struct {
	rows       string // arrow or parquet
	series     []SeriesSource
	candidates []string
	drops      bool
	schema     *arrow.Schema
	build      *array.RecordBuilder
	held       int // rows in build
	out        interface {
		Write(arrow.RecordBatch) error
		Close() error
	}
}

func newColumnEncoder(rows string, series []SeriesSource, candidates []string, drops bool) *columnEncoder {
	fields := []arrow.Field{
		{Name: "series", Type: arrow.BinaryTypes.String},
		{Name: "row", Type: arrow.PrimitiveTypes.Uint64},
		{Name: "timestamp", Type: arrow.BinaryTypes.String},
		{Name: "value", Type: arrow.PrimitiveTypes.Float64},
		{Name: "score", Type: arrow.PrimitiveTypes.Float32},
		{Name: "decision", Type: arrow.BinaryTypes.String},
		{Name: "round", Type: arrow.PrimitiveTypes.Uint64},
		{Name: "leader", Type: arrow.PrimitiveTypes.Uint64},
	}
	for _, c := range candidates {
		fields = append(fields, arrow.Field{Name: countName(c), Type: arrow.PrimitiveTypes.Uint32})
	}
	if drops {
		fields = append(fields, arrow.Field{Name: droppedColumn, Type: arrow.BinaryTypes.String})
	}
	return &columnEncoder{rows: rows, series: series, candidates: candidates, drops: drops, schema: arrow.NewSchema(fields, nil)}
}

// firstCount is the first column of votes.
const firstCount = 8

// spool implements encoder: the numbers in fixed places, then the text of the timestamp behind its length.
func (e *columnEncoder) spool(b []byte, d *batch.Decisions, i int) []byte {
	le := binary.LittleEndian
	b = le.AppendUint64(b, d.Row[i])
	b = le.AppendUint64(b, math.Float64bits(d.Value[i]))
	b = le.AppendUint64(b, d.Round[i])
	b = le.AppendUint64(b, d.Leader[i])
	b = le.AppendUint32(b, math.Float32bits(d.Score[i]))
	b = le.AppendUint32(b, d.Decision[i])
	for c := range e.candidates {
		b = le.AppendUint32(b, d.Counts[i*d.Candidates+c])
	}
	why := uint32(batch.Applied)
	if d.Dropped != nil {
		why = uint32(d.Dropped[i])
	}
	b = le.AppendUint32(b, why)
	b = le.AppendUint32(b, uint32(len(d.Timestamp[i])))
	return append(b, d.Timestamp[i]...)
}

// begin implements encoder.
func (e *columnEncoder) begin(w io.Writer) (err error) {
	e.build = array.NewRecordBuilder(memory.NewGoAllocator(), e.schema)
	w = plainWriter{w} // hides a Close of the output from the libraries
	if e.rows == "arrow" {
		e.out, err = ipc.NewFileWriter(w, ipc.WithSchema(e.schema))
		return err
	}
	e.out, err = newParquetWriter(w, e.schema)
	return err
}

// piece implements encoder.
func (e *columnEncoder) piece(series int, r io.Reader) error {
	in := bufio.NewReaderSize(r, 64<<10)
	le := binary.LittleEndian
	b := make([]byte, 48+4*len(e.candidates))
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
		name := noDecision
		if c := le.Uint32(b[36:]); c != batch.NoDecision {
			name = e.candidates[c]
		}
		e.build.Field(0).(*array.StringBuilder).Append(strings.ToValidUTF8(e.series[series].Name, "\uFFFD"))
		e.build.Field(1).(*array.Uint64Builder).Append(le.Uint64(b))
		e.build.Field(2).(*array.StringBuilder).BinaryBuilder.Append(stamp)
		e.build.Field(3).(*array.Float64Builder).Append(math.Float64frombits(le.Uint64(b[8:])))
		e.build.Field(4).(*array.Float32Builder).Append(math.Float32frombits(le.Uint32(b[32:])))
		e.build.Field(5).(*array.StringBuilder).Append(name)
		e.build.Field(6).(*array.Uint64Builder).Append(le.Uint64(b[16:]))
		e.build.Field(7).(*array.Uint64Builder).Append(le.Uint64(b[24:]))
		for c := range e.candidates {
			e.build.Field(firstCount + c).(*array.Uint32Builder).Append(le.Uint32(b[40+4*c:]))
		}
		if e.drops {
			e.build.Field(firstCount + len(e.candidates)).(*array.StringBuilder).Append(batch.Reasons[le.Uint32(b[len(b)-8:])])
		}
		if e.held++; e.held == columnRows {
			if err := e.flush(); err != nil {
				return err
			}
		}
	}
}

func (e *columnEncoder) flush() error {
	if e.held == 0 {
		return nil
	}
	e.held = 0
	rec := e.build.NewRecordBatch()
	defer rec.Release()
	return e.out.Write(rec)
}

// end implements encoder.
func (e *columnEncoder) end() error {
	err := e.flush()
	e.build.Release()
	return errors.Join(err, e.out.Close())
}
