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

// number is an element that Arrow lays out as Go does.
type number interface {
	uint8 | uint32 | uint64 | int32 | int64 | float32 | float64
}

func encode(s *arrow.Schema, n int, columns []arrow.ArrayData) ([]byte, error) {
	arrays := make([]arrow.Array, len(columns))
	for i, c := range columns {
		if c.Len() != n {
			return nil, fmt.Errorf("encode batch: column %q has %d rows of %d", s.Field(i).Name, c.Len(), n)
		}
		arrays[i] = array.MakeFromData(c)
	}
	rec := array.NewRecordBatch(s, arrays, int64(n))
	defer rec.Release()
	var out bytes.Buffer
	w := ipc.NewWriter(&out, ipc.WithSchema(s))
	if err := w.Write(rec); err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encode batch: %w", err)
	}
	return out.Bytes(), nil
}

func fixed[T number](t arrow.DataType, v []T) arrow.ArrayData {
	return array.NewData(t, len(v), []*memory.Buffer{nil, memory.NewBufferBytes(raw(v))}, nil, 0, 0)
}

func list[T number](t, elem arrow.DataType, n int, v []T) arrow.ArrayData {
	return array.NewData(t, n, []*memory.Buffer{nil}, []arrow.ArrayData{fixed(elem, v)}, 0, 0)
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
	o := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(offsets))), 4*len(offsets))
	return array.NewData(arrow.BinaryTypes.String, len(v),
		[]*memory.Buffer{nil, memory.NewBufferBytes(o), memory.NewBufferBytes(data)}, nil, 0, 0)
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

// decode reads the one record batch of a stream and hands it to fill. The Arrow library panics on
// some malformed messages; here that is an error like any other.
func decode(kind string, data []byte, fill func(*record)) (err error) {
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
	fill(r)
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

// column views a fixed-width column without copying.
func column[T number](r *record, name string) []T {
	a := r.get(name)
	var out []T
	switch a := a.(type) {
	case *array.Uint8:
		out, _ = any(a.Values()).([]T)
	case *array.Uint32:
		out, _ = any(a.Values()).([]T)
	case *array.Uint64:
		out, _ = any(a.Values()).([]T)
	case *array.Int64:
		out, _ = any(a.Values()).([]T)
	case *array.Float32:
		out, _ = any(a.Values()).([]T)
	case *array.Float64:
		out, _ = any(a.Values()).([]T)
	}
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
	var out []T
	switch v := a.ListValues().(type) {
	case *array.Float32:
		out, _ = any(v.Values()).([]T)
	case *array.Uint8:
		out, _ = any(v.Values()).([]T)
	case *array.Uint32:
		out, _ = any(v.Values()).([]T)
	case *array.Uint64:
		out, _ = any(v.Values()).([]T)
	case *array.Int64:
		out, _ = any(v.Values()).([]T)
	case *array.Float64:
		out, _ = any(v.Values()).([]T)
	}
	first := a.Offset() * n
	if n < 1 || len(out) < first+a.Len()*n {
		r.fail("column %q is %v with too few elements", name, a.DataType())
		return nil, 0
	}
	return out[first : first+a.Len()*n], n
}
