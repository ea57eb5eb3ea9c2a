package swarm

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

var arrowTypes = map[string]arrow.DataType{
	"uint8": arrow.PrimitiveTypes.Uint8, "uint32": arrow.PrimitiveTypes.Uint32, "uint64": arrow.PrimitiveTypes.Uint64,
	"int64": arrow.PrimitiveTypes.Int64, "float32": arrow.PrimitiveTypes.Float32,
	"float64": arrow.PrimitiveTypes.Float64,
}

// recordedArrow has a row for each row of each frame: tick or time, id, and the columns. Small
// frames share a record batch.
type recordedArrow struct {
	o       recordingOptions
	out     *ipc.FileWriter
	schema  *arrow.Schema
	columns []arrowColumn // of values, the first of them tick or time, then the ids
	rows    int           // in columns
}

// arrowColumn is the rows of a column that are not written yet.
type arrowColumn struct {
	element arrow.DataType
	width   int
	data    []byte
	valid   []bool
	nulls   int
}

func newRecordedArrow(w io.Writer, o recordingOptions, columns []recordColumn) (file, error) {
	f := &recordedArrow{o: o}
	var fields []arrow.Field
	add := func(name string, element arrow.DataType, width int, nullable bool) {
		t := element
		if width > 1 {
			t = arrow.FixedSizeListOfNonNullable(int32(width), element)
		}
		fields = append(fields, arrow.Field{Name: name, Type: t, Nullable: nullable})
		f.columns = append(f.columns, arrowColumn{element: element, width: width})
	}
	if o.Timed {
		add("time", arrow.FixedWidthTypes.Timestamp_us, 1, false)
	} else {
		add("tick", arrow.PrimitiveTypes.Uint64, 1, false)
	}
	if o.IDName != "" {
		add(o.IDName, arrow.PrimitiveTypes.Uint32, 1, false)
	}
	for _, c := range columns {
		add(c.Name, arrowTypes[kindOf(c.Values)], c.Width, c.Valid != nil)
	}
	f.schema = arrow.NewSchema(fields, nil)
	out, err := ipc.NewFileWriter(w, ipc.WithSchema(f.schema))
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	f.out = out
	return f, nil
}

func (f *recordedArrow) add(frame recordFrame) error {
	n, _ := lengthOf(frame.Columns[0].Values)
	n /= frame.Columns[0].Width
	moment := make([]uint64, n)
	at := frame.Tick
	if f.o.Timed {
		at = uint64(frame.Time.UnixMicro())
	}
	for i := range moment {
		moment[i] = at
	}
	f.columns[0].append(moment, nil)
	next := 1
	if f.o.IDName != "" {
		f.columns[1].append(frame.IDs, nil)
		next = 2
	}
	for i, c := range frame.Columns {
		f.columns[next+i].append(c.Values, c.Valid)
	}
	if f.rows += n; f.rows < arrowBatchRows {
		return nil
	}
	return f.flush()
}

// append adds values; some rows may have none.
func (c *arrowColumn) append(values any, valid []bool) {
	c.data = append(c.data, frameBytes(values)...)
	c.valid = append(c.valid, valid...)
	for _, ok := range valid {
		if !ok {
			c.nulls++
		}
	}
}

// take returns the rows as an array, which does not share their memory, and removes them.
func (c *arrowColumn) take(rows int) arrow.Array {
	elements := array.NewData(c.element, rows*c.width,
		[]*memory.Buffer{bitmap(c.valid), memory.NewBufferBytes(append([]byte(nil), c.data...))}, nil, c.nulls, 0)
	c.data, c.valid, c.nulls = c.data[:0], c.valid[:0], 0
	if c.width == 1 {
		return array.MakeFromData(elements)
	}
	list := arrow.FixedSizeListOfNonNullable(int32(c.width), c.element)
	return array.MakeFromData(array.NewData(list, rows, []*memory.Buffer{nil}, []arrow.ArrayData{elements}, 0, 0))
}

// bitmap returns a bit for each row that has a value; nil if valid is empty.
func bitmap(valid []bool) *memory.Buffer {
	if len(valid) == 0 {
		return nil
	}
	bits := make([]byte, (len(valid)+7)/8)
	for i, ok := range valid {
		if ok {
			bits[i/8] |= 1 << (i % 8)
		}
	}
	return memory.NewBufferBytes(bits)
}

// flush writes the rows that were collected as a record batch.
func (f *recordedArrow) flush() error {
	if f.rows == 0 {
		return nil
	}
	columns := make([]arrow.Array, len(f.columns))
	for i := range f.columns {
		columns[i] = f.columns[i].take(f.rows)
	}
	batch := array.NewRecordBatch(f.schema, columns, int64(f.rows))
	defer batch.Release()
	f.rows = 0
	return f.out.Write(batch)
}

func (f *recordedArrow) close() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.out.Close()
}
