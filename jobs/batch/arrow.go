package batch

import (
	"bytes"
	"fmt"
	"strconv"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/exoswarm/exoswarm/jobs"
)

// Observations travel packed (packed.go), and a decoder takes the Arrow streams of other clients
// too. Answers are Arrow. This file is the one way to and from Arrow: a kind of batch lists its
// columns, and the list serves both directions.

// metaKind and metaVersion are the schema metadata that say what a batch is.
const (
	metaKind    = "exoswarm.batch"
	metaVersion = "exoswarm.version"
)

// number is an element that Arrow lays out as Go does.
type number interface {
	uint8 | uint32 | uint64 | int32 | int64 | float32 | float64
}

// column is one column of a kind of batch. It is bound to the slice of a batch that it writes and
// reads.
type column struct {
	name  string
	write func(rows int) (arrow.ArrayData, error)
	read  func(r *record)
}

// layout describes a kind of batch as an Arrow record: its name, its rows, and its columns in
// order.
type layout struct {
	kind    string
	rows    int
	columns []column
}

// scalars is a column of one number a row.
func scalars[T number](name string, v *[]T) column {
	return column{
		name,
		func(int) (arrow.ArrayData, error) { return fixed(*v), nil },
		func(r *record) { *v = numbers[T](r, name) },
	}
}

// vectors is a column of lists of width numbers.
func vectors[T number](name string, v *[]T, width *int) column {
	return column{
		name,
		func(rows int) (arrow.ArrayData, error) {
			if *width < 1 || len(*v) != rows**width {
				return nil, fmt.Errorf("column %q has %d values for %d rows of width %d", name, len(*v), rows, *width)
			}
			t := arrow.FixedSizeListOfNonNullable(int32(*width), elementType[T]())
			return array.NewData(t, rows, []*memory.Buffer{nil}, []arrow.ArrayData{fixed(*v)}, 0, 0), nil
		},
		func(r *record) { *v, *width = lists[T](r, name) },
	}
}

// values is the column of features in full precision: lists, or numbers if a row has one.
func values(v *[]float64) column {
	return column{
		colValue,
		func(rows int) (arrow.ArrayData, error) {
			switch w := width(*v, rows); w {
			case -1:
				return nil, fmt.Errorf("column %q has %d values for %d rows", colValue, len(*v), rows)
			case 1:
				return fixed(*v), nil
			default:
				return vectors(colValue, v, &w).write(rows)
			}
		},
		func(r *record) {
			if _, is := r.get(colValue).(*array.FixedSizeList); is {
				*v, _ = lists[float64](r, colValue)
			} else {
				*v = numbers[float64](r, colValue)
			}
		},
	}
}

func texts(name string, v *[]string) column {
	return column{
		name,
		func(int) (arrow.ArrayData, error) { return text(*v), nil },
		func(r *record) {
			a, ok := r.get(name).(*array.String)
			if !ok {
				r.fail("column %q is %v, want utf8", name, r.typeOf(name))
				return
			}
			*v = make([]string, a.Len())
			for i := range *v {
				(*v)[i] = a.Value(i)
			}
		},
	}
}

// encode writes the columns as an Arrow IPC stream of one record batch.
func (l layout) encode() ([]byte, error) {
	fields, arrays := make([]arrow.Field, len(l.columns)), make([]arrow.Array, len(l.columns))
	for i, c := range l.columns {
		data, err := c.write(l.rows)
		if err == nil && data.Len() != l.rows {
			err = fmt.Errorf("column %q has %d rows of %d", c.name, data.Len(), l.rows)
		}
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", l.kind, err)
		}
		fields[i], arrays[i] = arrow.Field{Name: c.name, Type: data.DataType()}, array.MakeFromData(data)
	}
	meta := arrow.NewMetadata([]string{metaKind, metaVersion}, []string{l.kind, strconv.Itoa(jobs.Version)})
	s := arrow.NewSchema(fields, &meta)
	rec := array.NewRecordBatch(s, arrays, int64(l.rows))
	defer rec.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s))
	if err := w.Write(rec); err != nil {
		return nil, fmt.Errorf("encode %s: %w", l.kind, err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encode %s: %w", l.kind, err)
	}
	return out.Bytes(), nil
}

func elementType[T number]() arrow.DataType {
	var zero T
	switch any(zero).(type) {
	case uint8:
		return arrow.PrimitiveTypes.Uint8
	case uint32:
		return arrow.PrimitiveTypes.Uint32
	case uint64:
		return arrow.PrimitiveTypes.Uint64
	case int32:
		return arrow.PrimitiveTypes.Int32
	case int64:
		return arrow.PrimitiveTypes.Int64
	case float32:
		return arrow.PrimitiveTypes.Float32
	default:
		return arrow.PrimitiveTypes.Float64
	}
}

func fixed[T number](v []T) arrow.ArrayData {
	return array.NewData(elementType[T](), len(v), []*memory.Buffer{nil, memory.NewBufferBytes(raw(v))}, nil, 0, 0)
}

func text(v []string) arrow.ArrayData {
	offsets := make([]int32, len(v)+1)
	size := 0
	for i, s := range v {
		size += len(s)
		offsets[i+1] = int32(size)
	}
	data := make([]byte, 0, size)
	for _, s := range v {
		data = append(data, s...)
	}
	return array.NewData(arrow.BinaryTypes.String, len(v),
		[]*memory.Buffer{nil, memory.NewBufferBytes(raw(offsets)), memory.NewBufferBytes(data)}, nil, 0, 0)
}

func raw[T number](v []T) []byte {
	if len(v) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(v[0])))
}

// record is a decoded batch; err is the first thing found wrong with it.
type record struct {
	arrow.RecordBatch
	kind string
	err  error
}

func (r *record) fail(format string, args ...any) {
	if r.err == nil {
		r.err = jobs.Errorf(jobs.CodeInvalid, "batch of "+r.kind+": "+format, args...)
	}
}

// decode reads the columns from the one record batch of a stream. checks get the record then. The
// Arrow library panics on some malformed messages; here that is an error like any other.
func (l layout) decode(data []byte, checks ...func(*record)) (err error) {
	kind := l.kind
	bad := func(format string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "batch of "+kind+": "+format, args...)
	}
	defer func() {
		if p := recover(); p != nil {
			err = bad("not a valid Arrow IPC stream: %v", p)
		}
	}()
	if err := verify(data); err != nil {
		return bad("not an Arrow IPC stream: %v", err)
	}
	rd, err := ipc.NewReader(bytes.NewReader(data))
	if err != nil {
		return bad("not an Arrow IPC stream: %v", err)
	}
	meta := rd.Schema().Metadata()
	if got, _ := meta.GetValue(metaKind); got != kind {
		return bad("its schema says %q", got)
	}
	if v, _ := meta.GetValue(metaVersion); v != strconv.Itoa(jobs.Version) {
		return jobs.Errorf(jobs.CodeVersion, "batch of %s: its version is %q, this agent speaks %d", kind, v,
			jobs.Version)
	}
	if !rd.Next() {
		return bad("it holds no record batch: %v", rd.Err())
	}
	r := &record{RecordBatch: rd.RecordBatch(), kind: kind}
	r.Retain() // the columns outlive the reader
	for i := range int(r.NumCols()) {
		c := r.Column(i)
		if c.NullN() != 0 {
			return bad("column %q has nulls", r.ColumnName(i))
		}
		if int64(c.Len()) != r.NumRows() {
			return bad("column %q has %d rows of %d", r.ColumnName(i), c.Len(), r.NumRows())
		}
	}
	for _, c := range l.columns {
		c.read(r)
	}
	for _, check := range checks {
		check(r)
	}
	return r.err
}

func (r *record) get(name string) arrow.Array {
	for i := range int(r.NumCols()) {
		if r.ColumnName(i) == name {
			return r.Column(i)
		}
	}
	return nil
}

func (r *record) typeOf(name string) any {
	if a := r.get(name); a != nil {
		return a.DataType()
	}
	return "missing"
}

// elements returns the numbers of an array as a slice without copying, or nil.
func elements(a arrow.Array) any {
	switch a := a.(type) {
	case *array.Uint8:
		return a.Values()
	case *array.Uint32:
		return a.Values()
	case *array.Uint64:
		return a.Values()
	case *array.Int32:
		return a.Values()
	case *array.Int64:
		return a.Values()
	case *array.Float32:
		return a.Values()
	case *array.Float64:
		return a.Values()
	}
	return nil
}

// numbers views a fixed-width column without copying.
func numbers[T number](r *record, name string) []T {
	a := r.get(name)
	out, _ := elements(a).([]T)
	if a == nil || len(out) != a.Len() {
		var zero T
		r.fail("column %q is %v, want %T", name, r.typeOf(name), zero)
		return nil
	}
	return out
}

// lists views a column of fixed-size lists without copying and returns the size of each.
func lists[T number](r *record, name string) ([]T, int) {
	a, ok := r.get(name).(*array.FixedSizeList)
	if !ok {
		r.fail("column %q is %v, want lists of fixed size", name, r.typeOf(name))
		return nil, 0
	}
	n := int(a.DataType().(*arrow.FixedSizeListType).Len())
	out, _ := elements(a.ListValues()).([]T)
	first := a.Offset() * n
	if n < 1 || len(out) < first+a.Len()*n {
		r.fail("column %q is %v with too few elements", name, a.DataType())
		return nil, 0
	}
	return out[first : first+a.Len()*n], n
}
