package gpujob

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// Type is the type of the elements of an array.
type Type string

// The types.
const (
	F32 Type = "f32"
	F64 Type = "f64"
	I32 Type = "i32"
	I64 Type = "i64"
	U32 Type = "u32"
	U64 Type = "u64"
	U8  Type = "u8"
)

// Bytes returns the size of an element in bytes, or 0 for an unknown type.
func (t Type) Bytes() int64 {
	switch t {
	case F32, I32, U32:
		return 4
	case F64, I64, U64:
		return 8
	case U8:
		return 1
	}
	return 0
}

// Types lists the types for error texts.
const Types = "f32, f64, i32, i64, u32, u64 or u8"

// MaxDims is the largest number of dimensions of an array.
const MaxDims = 8

// Shape is the sizes of the dimensions of an array, row-major: the last one is contiguous.
type Shape []int64

// Count returns the number of elements, or an error for a shape that no array has or that has more
// than 2^40 elements.
func (s Shape) Count() (int64, error) {
	if len(s) == 0 || len(s) > MaxDims {
		return 0, invalid("a shape of %d dimensions: use 1 to %d", len(s), MaxDims)
	}
	n := int64(1)
	for _, d := range s {
		if d < 0 || d > 1<<40 || d > 0 && n > (1<<40)/d {
			return 0, invalid("shape %v: use dimensions from 0 and at most 2^40 elements", []int64(s))
		}
		n *= d
	}
	return n, nil
}

// Array is an array in a specification or an output. Exactly one of Values, Data and Object holds
// its elements.
type Array struct {
	Type  Type  `json:"type"`
	Shape Shape `json:"shape"`
	// Values are the elements in row-major order as JSON numbers, in one flat list.
	Values json.RawMessage `json:"values,omitempty"`
	// Data is the elements in row-major order, little-endian; in JSON it is base64.
	Data []byte `json:"data,omitempty"`
	// Object names an object of the object store with the bytes of Data. An object of a job's
	// input belongs to the tenant of the job.
	Object string `json:"object,omitempty"`
	// Format is the encoding of Data or Object. Type and Shape must match the content. It is raw in
	// outputs.
	Format Format `json:"format,omitempty"`
	// Column is the column of FormatArrow; empty: the only one. A column of lists of fixed size has
	// two dimensions.
	Column string `json:"column,omitempty"`
}

// Format is what the bytes of an array are.
type Format string

// The formats of bytes.
const (
	FormatRaw   Format = ""      // the elements in row-major order, little-endian
	FormatNPY   Format = "npy"   // a .npy file of NumPy in C order
	FormatArrow Format = "arrow" // an Arrow IPC stream with one record batch
)

// Element is a Go type of an element.
type Element interface {
	float32 | float64 | int32 | int64 | uint32 | uint64 | uint8
}

// TypeOf returns the type of a Go type.
func TypeOf[T Element]() Type {
	var zero T
	switch any(zero).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case int32:
		return I32
	case int64:
		return I64
	case uint32:
		return U32
	case uint64:
		return U64
	}
	return U8
}

// From returns an array with the elements of a slice, which it copies. Without a shape the array
// has one dimension.
func From[T Element](values []T, shape ...int64) Array {
	if len(shape) == 0 {
		shape = []int64{int64(len(values))}
	}
	data, err := binary.Append(nil, binary.LittleEndian, values)
	if err != nil {
		panic(err) // Element admits fixed sizes only
	}
	return Array{Type: TypeOf[T](), Shape: shape, Data: data}
}

// Decode returns the elements of bytes in little-endian order. A tail shorter than an element is
// left out.
func Decode[T Element](data []byte) []T {
	size := int(TypeOf[T]().Bytes())
	out := make([]T, len(data)/size)
	if _, err := binary.Decode(data[:len(out)*size], binary.LittleEndian, out); err != nil {
		panic(err) // the sizes fit
	}
	return out
}

// Size returns the number of bytes of the elements. The array has passed check.
func (a *Array) Size() int64 {
	n, _ := a.Shape.Count()
	return n * a.Type.Bytes()
}

// check returns an error unless the type, the shape and inline bytes fit together. field names the
// array in the error.
func (a *Array) check(field string) error {
	if a.Type.Bytes() == 0 {
		return invalid("spec.%s.type %q: use %s", field, a.Type, Types)
	}
	n, err := a.Shape.Count()
	if err != nil {
		return fmt.Errorf("spec.%s.shape: %w", field, err)
	}
	given := 0
	for _, has := range []bool{len(a.Values) > 0, len(a.Data) > 0, a.Object != ""} {
		if has {
			given++
		}
	}
	switch a.Format {
	case FormatRaw, FormatNPY, FormatArrow:
	default:
		return invalid("spec.%s.format %q: use npy or arrow, or leave it out for bytes of elements", field, a.Format)
	}
	switch {
	case a.Column != "" && a.Format != FormatArrow:
		return invalid("spec.%s.column: only format arrow has columns", field)
	case a.Format != FormatRaw && len(a.Data) == 0 && a.Object == "":
		return invalid("spec.%s.format %s: use data or object", field, a.Format)
	case given > 1:
		return invalid("spec.%s: use one of values, data and object", field)
	case given == 0 && n > 0:
		return invalid("spec.%s: %d elements are missing: use values, data or object", field, n)
	case a.Format == FormatRaw && len(a.Data) > 0 && int64(len(a.Data)) != n*a.Type.Bytes():
		return invalid("spec.%s.data: %d bytes for %d elements of %s: use %d bytes in base64", field, len(a.Data), n,
			a.Type, n*a.Type.Bytes())
	}
	return nil
}

// checkType is check for an array that must have one of some types and a number of dimensions; 0
// for any.
func (a *Array) checkType(field string, dims int, types ...Type) error {
	if err := a.check(field); err != nil {
		return err
	}
	if dims > 0 && len(a.Shape) != dims {
		return invalid("spec.%s.shape %v: use %d dimensions", field, []int64(a.Shape), dims)
	}
	var names []string
	for _, t := range types {
		if a.Type == t {
			return nil
		}
		names = append(names, string(t))
	}
	return invalid("spec.%s.type %q: use %s", field, a.Type, strings.Join(names, " or "))
}

// Inline returns the bytes of an array whose elements are in Values or Data. The result may share
// memory with the array. field names the array in errors, which are of code invalid.
func (a *Array) Inline(field string) ([]byte, error) {
	if len(a.Values) == 0 {
		return a.Data, nil
	}
	var numbers []json.Number
	d := json.NewDecoder(bytes.NewReader(a.Values))
	d.UseNumber()
	if err := d.Decode(&numbers); err != nil {
		return nil, invalid("spec.%s.values: use a flat list of numbers: %v", field, err)
	}
	if n, err := a.Shape.Count(); err != nil || int64(len(numbers)) != n {
		return nil, invalid("spec.%s.values: %d numbers for the shape %v", field, len(numbers), []int64(a.Shape))
	}
	out := make([]byte, 0, a.Size())
	for i, number := range numbers {
		var err error
		if out, err = appendNumber(out, a.Type, number.String()); err != nil {
			return nil, invalid("spec.%s.values[%d]: %s is no %s", field, i, number, a.Type)
		}
	}
	return out, nil
}

func appendNumber(out []byte, t Type, text string) ([]byte, error) {
	le := binary.LittleEndian
	switch t {
	case F32:
		v, err := dialect.Float(text, 32)
		return le.AppendUint32(out, math.Float32bits(float32(v))), err
	case F64:
		v, err := dialect.Float(text, 64)
		return le.AppendUint64(out, math.Float64bits(v)), err
	case I32:
		v, err := strconv.ParseInt(text, 10, 32)
		return le.AppendUint32(out, uint32(v)), err
	case I64:
		v, err := strconv.ParseInt(text, 10, 64)
		return le.AppendUint64(out, uint64(v)), err
	case U32:
		v, err := strconv.ParseUint(text, 10, 32)
		return le.AppendUint32(out, uint32(v)), err
	case U64:
		v, err := strconv.ParseUint(text, 10, 64)
		return le.AppendUint64(out, v), err
	}
	v, err := strconv.ParseUint(text, 10, 8)
	return append(out, byte(v)), err
}
