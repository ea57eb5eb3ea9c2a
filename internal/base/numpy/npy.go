// Package numpy reads and writes the files of NumPy. A .npy file has an array of numbers, here in
// little-endian order and C order. A .npz archive is a ZIP file with a .npy file for each array,
// and here also JSON documents.
package numpy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// ErrFormat is wrapped by the errors for input that is no .npy file, or an unsupported one. The
// text says what to do.
var ErrFormat = errors.New("not a .npy file that can be read")

// Array is an array of a .npy file.
type Array struct {
	// Type is the type of the elements, as in "<f4": the byte order, a letter and the bytes of an
	// element.
	Type  string
	Shape []int64
	// Data is the elements in row-major, little-endian order.
	Data []byte
}

// Limits of a file.
const (
	maxHeader = 64 << 10
	maxDims   = 32
)

var (
	magic        = []byte("\x93NUMPY")
	descrPattern = regexp.MustCompile(`'descr'\s*:\s*'([^']*)'`)
	orderPattern = regexp.MustCompile(`'fortran_order'\s*:\s*(True|False)`)
	shapePattern = regexp.MustCompile(`'shape'\s*:\s*\(([0-9,\sL]*)\)`)
	typePattern  = regexp.MustCompile(`^[<|=]([fiu])([1248])$`)
)

// ElementBytes returns the size of an element of a type in bytes, or 0 for a type that is not
// supported.
func ElementBytes(t string) int64 {
	m := typePattern.FindStringSubmatch(t)
	if m == nil || m[1] == "f" && m[2] == "1" {
		return 0
	}
	return int64(m[2][0] - '0')
}

// Read reads a file with at most limit bytes of elements. It reads to the end of r, where no byte
// may follow the elements.
func Read(r io.Reader, limit int64) (*Array, error) {
	a, err := ReadHeader(r)
	if err != nil {
		return nil, err
	}
	size := ElementBytes(a.Type)
	for _, d := range a.Shape {
		if d > 0 && size > limit/d {
			return nil, fmt.Errorf("shape %v of %s: more than %d bytes: %w", a.Shape, a.Type, limit, ErrFormat)
		}
		size *= d
	}
	// The buffer grows with what is there, so that a shape alone costs no memory.
	var buf bytes.Buffer
	n, err := io.Copy(&buf, io.LimitReader(r, size+1))
	if err != nil {
		return nil, fmt.Errorf("read .npy: %w", err)
	}
	if n != size {
		return nil, fmt.Errorf("%d bytes of elements or more for the shape %v of %s, which has %d: %w", n, a.Shape,
			a.Type, size, ErrFormat)
	}
	a.Data = buf.Bytes()
	return a, nil
}

// ReadHeader reads up to the elements, in a version of 1.0 to 3.0. It returns the array without
// elements.
func ReadHeader(r io.Reader) (*Array, error) {
	var start [8]byte
	if err := readFull(r, start[:]); err != nil {
		return nil, err
	}
	if !bytes.Equal(start[:6], magic) {
		return nil, fmt.Errorf("it does not begin with \\x93NUMPY: %w", ErrFormat)
	}
	length, n := make([]byte, 4), 4
	switch start[6] {
	case 1:
		n = 2
	case 2, 3:
	default:
		return nil, fmt.Errorf("version %d: save it with numpy.save: %w", start[6], ErrFormat)
	}
	if err := readFull(r, length[:n]); err != nil {
		return nil, err
	}
	size := binary.LittleEndian.Uint32(length)
	if size > maxHeader {
		return nil, fmt.Errorf("a header of %d bytes, at most %d: %w", size, maxHeader, ErrFormat)
	}
	text := make([]byte, size)
	if err := readFull(r, text); err != nil {
		return nil, err
	}
	return parseHeader(string(text))
}

func readFull(r io.Reader, b []byte) error {
	_, err := io.ReadFull(r, b)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it ends in its header: %w", ErrFormat)
	case err != nil:
		return fmt.Errorf("read .npy: %w", err)
	}
	return nil
}

// parseHeader returns the array that a header describes, without elements.
func parseHeader(text string) (*Array, error) {
	descr, order := descrPattern.FindStringSubmatch(text), orderPattern.FindStringSubmatch(text)
	shape := shapePattern.FindStringSubmatch(text)
	switch {
	case descr == nil || order == nil || shape == nil:
		return nil, fmt.Errorf("header %.80q: descr, fortran_order or shape is missing: %w", text, ErrFormat)
	case ElementBytes(descr[1]) == 0:
		return nil, fmt.Errorf("elements of %.20q: convert them to f4, f8, i4, i8, u4, u8 or u1: %w", descr[1],
			ErrFormat)
	case order[1] == "True":
		return nil, fmt.Errorf("fortran_order: save numpy.ascontiguousarray(a): %w", ErrFormat)
	}
	a := &Array{Type: "<" + descr[1][1:], Shape: []int64{}}
	for _, part := range strings.Split(shape[1], ",") {
		if part = strings.TrimSuffix(strings.TrimSpace(part), "L"); part == "" {
			continue
		}
		d, err := strconv.ParseInt(part, 10, 64)
		if err != nil || len(a.Shape) == maxDims {
			return nil, fmt.Errorf("shape (%.40s): %w", shape[1], ErrFormat)
		}
		a.Shape = append(a.Shape, d)
	}
	return a, nil
}

// Write writes an array as a file of version 1.0, which is aligned to 64 bytes as NumPy writes it.
func Write(w io.Writer, a *Array) error {
	size := ElementBytes(a.Type)
	for _, d := range a.Shape {
		size *= d
	}
	if ElementBytes(a.Type) == 0 || size != int64(len(a.Data)) || len(a.Shape) > maxDims {
		return fmt.Errorf("%d bytes for the shape %v of %q: %w", len(a.Data), a.Shape, a.Type, ErrFormat)
	}
	if err := WriteHeader(w, a.Type, a.Shape...); err != nil {
		return err
	}
	if _, err := w.Write(a.Data); err != nil {
		return fmt.Errorf("write .npy: %w", err)
	}
	return nil
}

// descrs are the names of NumPy for types of numbers.
var descrs = map[string]string{
	"uint8": "|u1", "int32": "<i4", "uint32": "<u4", "int64": "<i8", "uint64": "<u8", "float32": "<f4",
	"float64": "<f8",
}

// Descr returns the name of NumPy for a type of numbers of Go, such as <f4 for float32; empty for a
// type that files do not have.
func Descr(kind string) string { return descrs[kind] }

// WriteHeader writes the header of a file as Write does. The caller writes the elements behind it.
func WriteHeader(w io.Writer, descr string, of ...int64) error {
	switch ElementBytes(descr) {
	case 0:
		return fmt.Errorf("elements of %q: %w", descr, ErrFormat)
	case 1:
		descr = "|" + descr[1:]
	}
	var shape strings.Builder
	for _, d := range of {
		fmt.Fprintf(&shape, "%d, ", d)
	}
	list := strings.TrimSuffix(shape.String(), " ")
	if len(of) > 1 {
		list = strings.TrimSuffix(list, ",")
	}
	text := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, list)
	const before = 10 // magic, version and length
	text += strings.Repeat(" ", 63-(before+len(text))%64) + "\n"
	head := append(bytes.Clone(magic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(text)))
	if _, err := w.Write(append(head, text...)); err != nil {
		return fmt.Errorf("write .npy: %w", err)
	}
	return nil
}
