package batch

import (
	"bytes"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/exoswarm/exoswarm/jobs"
)

// Numbers is a column of numbers of an Arrow IPC stream of any writer.
type Numbers struct {
	Type  string  // float32, float64, int32, int64, uint32, uint64 or uint8
	Shape []int64 // rows, or rows and the elements of a list of fixed size
	Data  []byte  // the elements in row-major, little-endian order; shares memory with the message
}

// ReadNumbers reads a column of an Arrow IPC stream with one record batch. An empty name means the
// only column. A message that is not one, whatever is in it, and a column with nulls or of other
// elements give a jobs.Error of class jobs.CodeInvalid.
func ReadNumbers(data []byte, name string) (_ *Numbers, err error) {
	bad := func(format string, args ...any) error {
		return jobs.Errorf(jobs.CodeInvalid, "Arrow IPC stream: "+format, args...)
	}
	defer func() {
		if p := recover(); p != nil { // the library panics on some malformed messages
			err = bad("not valid: %v", p)
		}
	}()
	if err := verify(data); err != nil {
		return nil, bad("%v", err)
	}
	rd, err := ipc.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, bad("%v", err)
	}
	defer rd.Release()
	if !rd.Next() {
		return nil, bad("it holds no record batch: %v", rd.Err())
	}
	r := rd.RecordBatch()
	r.Retain() // its memory outlives the reader
	if rd.Next() {
		return nil, bad("it holds more than one record batch: write one")
	}
	var column arrow.Array
	for i := range int(r.NumCols()) {
		if r.ColumnName(i) == name || name == "" && r.NumCols() == 1 {
			column = r.Column(i)
		}
	}
	if column == nil {
		return nil, bad("no column %q of %d: name one", name, r.NumCols())
	}
	if int64(column.Len()) != r.NumRows() {
		return nil, bad("%d rows of %d in the column", column.Len(), r.NumRows())
	}
	out := &Numbers{Shape: []int64{r.NumRows()}}
	first, n := 0, column.Len()
	if column.NullN() != 0 {
		return nil, bad("the column has nulls: fill them")
	}
	if list, ok := column.(*array.FixedSizeList); ok {
		width := int(list.DataType().(*arrow.FixedSizeListType).Len())
		first, n = list.Offset()*width, n*width
		out.Shape = append(out.Shape, int64(width))
		if column = list.ListValues(); column.NullN() != 0 {
			return nil, bad("the column has nulls: fill them")
		}
	}
	switch column := column.(type) {
	case *array.Float32:
		out.Type, out.Data = "float32", raw(column.Values()[first:][:n])
	case *array.Float64:
		out.Type, out.Data = "float64", raw(column.Values()[first:][:n])
	case *array.Int32:
		out.Type, out.Data = "int32", raw(column.Values()[first:][:n])
	case *array.Int64:
		out.Type, out.Data = "int64", raw(column.Values()[first:][:n])
	case *array.Uint32:
		out.Type, out.Data = "uint32", raw(column.Values()[first:][:n])
	case *array.Uint64:
		out.Type, out.Data = "uint64", raw(column.Values()[first:][:n])
	case *array.Uint8:
		out.Type, out.Data = "uint8", raw(column.Values()[first:][:n])
	default:
		return nil, bad("the column is %v: use numbers of 32 or 64 bits, uint8, or lists of fixed size of them",
			column.DataType())
	}
	return out, nil
}
