package swarm

import (
	"fmt"
	"io"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
)

// arrowBatchRows is the number of rows of a record batch of an Arrow file; the last has the rest.
// Rows of many elements have smaller batches, of 4 MiB.
const arrowBatchRows = 65_536

// batchBytes bounds the values of a record batch.
const batchBytes = 4 << 20

// arrowFile is a table with the columns agent and group, or group alone, the key columns of the
// group, which are null without an entity, and the variable.
type arrowFile struct {
	variableInfo
	out      *ipc.FileWriter
	schema   *arrow.Schema
	perGroup int
	keys     keyColumns
	most     int // rows of a batch
	rowBytes int

	next   int64 // the id of the first row of values
	values []byte
	ids    []uint32
	groups []uint32
	texts  []string
}

// newArrow begins an Arrow IPC file of a snapshot whose first part is given. The ids of a swarm
// have 32 bits.
func newArrow(w io.Writer, r variableInfo, first *snapshot.Manifest, keys keyColumns) (tableFile, error) {
	f := &arrowFile{
		variableInfo: r, perGroup: first.PerGroup, keys: keys, rowBytes: r.Width * elementBytes(r.DType),
		next: int64(first.First()),
	}
	if r.Per == "agent" {
		f.next *= int64(first.PerGroup)
	}
	f.most = max(1, min(arrowBatchRows, batchBytes/f.rowBytes))
	var fields []arrow.Field
	if r.Per == "agent" {
		fields = append(fields, arrow.Field{Name: "agent", Type: arrow.PrimitiveTypes.Uint32})
	}
	fields = append(fields, arrow.Field{Name: "group", Type: arrow.PrimitiveTypes.Uint32})
	taken := map[string]bool{"agent": true, "group": true, r.Variable: true}
	if keys != nil {
		for _, name := range keys.Columns() {
			if taken[name] {
				name = "key." + name
			}
			taken[name] = true
			fields = append(fields, arrow.Field{Name: name, Type: arrow.BinaryTypes.String, Nullable: true})
		}
	}
	fields = append(fields, arrow.Field{Name: r.Variable, Type: f.valueType()})
	f.schema = arrow.NewSchema(fields, nil)
	out, err := ipc.NewFileWriter(w, ipc.WithSchema(f.schema))
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	f.out = out
	return f, nil
}

func (f *arrowFile) elementType() arrow.DataType {
	switch f.DType {
	case "uint8":
		return arrow.PrimitiveTypes.Uint8
	case "uint32":
		return arrow.PrimitiveTypes.Uint32
	case "uint64":
		return arrow.PrimitiveTypes.Uint64
	case "int64":
		return arrow.PrimitiveTypes.Int64
	}
	return arrow.PrimitiveTypes.Float32
}

// valueType returns the type of the column of the variable: lists of fixed size, or numbers if each
// row has one.
func (f *arrowFile) valueType() arrow.DataType {
	if f.Width == 1 {
		return f.elementType()
	}
	return arrow.FixedSizeListOfNonNullable(int32(f.Width), f.elementType())
}

func (f *arrowFile) write(rows []byte) error {
	for len(rows) > 0 {
		n := min(len(rows), f.most*f.rowBytes-len(f.values))
		f.values = append(f.values, rows[:n]...)
		rows = rows[n:]
		if len(f.values) == f.most*f.rowBytes {
			if err := f.flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes the rows that were collected as a record batch.
func (f *arrowFile) flush() error {
	n := len(f.values) / f.rowBytes
	if n == 0 {
		return nil
	}
	f.ids, f.groups = f.ids[:0], f.groups[:0]
	for i := range int64(n) {
		id := f.next + i
		f.ids = append(f.ids, uint32(id))
		if f.Per == "agent" {
			id /= int64(f.perGroup)
		}
		f.groups = append(f.groups, uint32(id))
	}
	var columns []arrow.Array
	if f.Per == "agent" {
		columns = append(columns, numbers(arrow.PrimitiveTypes.Uint32, n, bytesOf(f.ids)))
	}
	columns = append(columns, numbers(arrow.PrimitiveTypes.Uint32, n, bytesOf(f.groups)))
	columns = append(columns, f.keyColumns()...)
	elements := array.NewData(f.elementType(), n*f.Width, []*memory.Buffer{nil, memory.NewBufferBytes(f.values)}, nil,
		0, 0)
	values := arrow.ArrayData(elements)
	if f.Width > 1 {
		values = array.NewData(f.valueType(), n, []*memory.Buffer{nil}, []arrow.ArrayData{elements}, 0, 0)
	}
	columns = append(columns, array.MakeFromData(values))
	batch := array.NewRecordBatch(f.schema, columns, int64(n))
	defer batch.Release()
	f.next += int64(n)
	f.values = f.values[:0]
	return f.out.Write(batch)
}

// numbers returns a column of numbers that shares their memory.
func numbers(t arrow.DataType, n int, data []byte) arrow.Array {
	return array.MakeFromData(array.NewData(t, n, []*memory.Buffer{nil, memory.NewBufferBytes(data)}, nil, 0, 0))
}

// keyColumns returns the key columns of the rows that were collected.
func (f *arrowFile) keyColumns() (columns []arrow.Array) {
	if f.keys == nil {
		return nil
	}
	names := f.keys.Columns()
	builders := make([]*array.StringBuilder, len(names))
	for i := range builders {
		builders[i] = array.NewStringBuilder(memory.DefaultAllocator)
		defer builders[i].Release()
	}
	exists, last := false, -1
	for _, g := range f.groups {
		if int(g) != last {
			last = int(g)
			f.texts, exists = f.keys.Values(f.texts[:0], last)
		}
		for i, b := range builders {
			if !exists || i >= len(f.texts) {
				b.AppendNull()
				continue
			}
			b.Append(f.texts[i])
		}
	}
	for _, b := range builders {
		columns = append(columns, b.NewArray())
	}
	return columns
}

func (f *arrowFile) close() error {
	if err := f.flush(); err != nil {
		return err
	}
	return f.out.Close()
}
