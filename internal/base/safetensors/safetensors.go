// Package safetensors reads and writes files of tensors in the format safetensors. A file has 8
// bytes with the length of a header, little-endian; the header, a JSON object that describes each
// tensor; and the elements of all tensors without a gap, little-endian, in row-major order.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/internal/base/quant"
)

// Errors of this package.
var (
	// ErrFormat is input that is no file of this format, or one that breaks a rule of it.
	ErrFormat = errors.New("not a safetensors file that can be read")
	// ErrTensor is a tensor that the file does not have, or that cannot be read as asked.
	ErrTensor = errors.New("no such tensor")
)

// F32 is the type of elements that are IEEE floats of 32 bits.
const F32 = quant.F32

// elements are the bytes of an element by type.
var elements = map[string]int64{
	"F64": 8, F32: 4, quant.F16: 2, quant.BF16: 2, "F8_E5M2": 1, "F8_E4M3": 1, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
	"U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1,
}

// Limits of a file.
const (
	maxHeader = 16 << 20 // bytes
	maxName   = 512      // bytes of the name of a tensor
	maxDims   = 16
	align     = 8 // of the elements in a file
)

// metadata is the key of the header that describes the file and no tensor.
const metadata = "__metadata__"

// Tensor describes one tensor of a file.
type Tensor struct {
	Name  string
	Type  string  // F32, F16, BF16 and so on
	Shape []int64 // empty: one element
	First int64   // of its bytes in the file
	Bytes int64
}

// File describes the tensors of a file. It does not change, and may be used concurrently if its
// reader may.
type File struct {
	// Tensors are in the order of their elements.
	Tensors []Tensor
	r       io.ReaderAt
}

// Open reads the header of a file of size bytes, and checks that its tensors are all of the file
// and overlap nowhere. The error is an ErrFormat, or an error of r. It allocates memory in
// proportion to the header, which has 16 MiB at most. The File reads from r later on.
func Open(r io.ReaderAt, size int64) (*File, error) {
	var length [8]byte
	if size < int64(len(length)) {
		return nil, fmt.Errorf("%w: it has %d bytes, and its header takes more", ErrFormat, size)
	}
	if err := readAt(r, length[:], 0); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	if n > maxHeader || int64(n) > size-int64(len(length)) {
		return nil, fmt.Errorf("%w: a header of %d bytes in a file of %d: use at most %d", ErrFormat, n, size,
			maxHeader)
	}
	header := make([]byte, n)
	if err := readAt(r, header, int64(len(length))); err != nil {
		return nil, err
	}
	f := &File{r: r}
	var err error
	if f.Tensors, err = parse(header); err != nil {
		return nil, err
	}
	return f, f.tile(int64(len(length))+int64(n), size)
}

func readAt(r io.ReaderAt, p []byte, at int64) error {
	if n, err := r.ReadAt(p, at); n < len(p) {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("%w: it ends before byte %d", ErrFormat, at+int64(len(p)))
		}
		return fmt.Errorf("read bytes %d to %d: %w", at, at+int64(len(p))-1, err)
	}
	return nil
}

// entry is the description of a tensor in a header.
type entry struct {
	Type    string  `json:"dtype"`
	Shape   []int64 `json:"shape"`
	Offsets []int64 `json:"data_offsets"`
}

// parse reads the tensors of a header, in any order. Their first bytes count from the end of the
// header.
func parse(header []byte) (all []Tensor, err error) {
	if !utf8.Valid(header) || len(header) == 0 || header[0] != '{' {
		return nil, fmt.Errorf("%w: its header is no JSON object in UTF-8", ErrFormat)
	}
	dec := json.NewDecoder(bytes.NewReader(header))
	dec.DisallowUnknownFields()
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: header: %w", ErrFormat, err)
		}
		name, _ := key.(string)
		if err := checkName(name); err != nil || seen[name] {
			return nil, fmt.Errorf("%w: tensor %.100q: its name is there twice, empty, longer than %d bytes or has "+
				"control characters", ErrFormat, name, maxName)
		}
		seen[name] = true
		if name == metadata {
			var texts map[string]string
			if err := dec.Decode(&texts); err != nil {
				return nil, fmt.Errorf("%w: %s: %w", ErrFormat, metadata, err)
			}
			continue
		}
		var e entry
		if err := dec.Decode(&e); err != nil {
			return nil, fmt.Errorf("%w: tensor %s: %w", ErrFormat, name, err)
		}
		t, err := e.tensor(name)
		if err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	if _, err := dec.Token(); err != nil {
		return nil, fmt.Errorf("%w: header: %w", ErrFormat, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: header: more than spaces follow the object", ErrFormat)
	}
	slices.SortFunc(all, func(a, b Tensor) int { // tensors without elements come first
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Bytes, b.Bytes), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

func checkName(name string) error {
	if name == "" || len(name) > maxName || strings.ContainsFunc(name, unicode.IsControl) {
		return ErrFormat
	}
	return nil
}

// tensor checks a description by itself.
func (e entry) tensor(name string) (t Tensor, err error) {
	size, known := elements[e.Type]
	switch {
	case !known:
		return t, fmt.Errorf("%w: tensor %s: elements of the unknown type %.100q", ErrFormat, name, e.Type)
	case e.Shape == nil || len(e.Shape) > maxDims:
		return t, fmt.Errorf("%w: tensor %s: a shape of %d dimensions: use 0 to %d", ErrFormat, name, len(e.Shape),
			maxDims)
	case len(e.Offsets) != 2 || e.Offsets[0] < 0 || e.Offsets[1] < e.Offsets[0]:
		return t, fmt.Errorf("%w: tensor %s: data_offsets %v: want a first byte and the byte after the last",
			ErrFormat, name, e.Offsets)
	}
	n, err := bytesOf(e.Type, e.Shape)
	if t = (Tensor{name, e.Type, e.Shape, e.Offsets[0], e.Offsets[1] - e.Offsets[0]}); err != nil || n != t.Bytes {
		return t, fmt.Errorf("%w: tensor %s: data_offsets %v are not the bytes of %v elements of %s", ErrFormat, name,
			e.Offsets, e.Shape, e.Type)
	}
	if t.First%size != 0 {
		return t, fmt.Errorf("%w: tensor %s: its first byte, %d, is no multiple of %d", ErrFormat, name, t.First, size)
	}
	return t, nil
}

// bytesOf returns the bytes of a tensor of a known type.
func bytesOf(kind string, shape []int64) (int64, error) {
	n := elements[kind]
	empty := slices.Contains(shape, 0)
	for _, d := range shape {
		if d < 0 || !empty && n > math.MaxInt64/max(d, 1) {
			return 0, fmt.Errorf("%w: shape %v", ErrFormat, shape)
		}
		if !empty {
			n *= d
		}
	}
	if empty {
		return 0, nil
	}
	return n, nil
}

// tile checks that the tensors follow one another from the header, which has from bytes, to the end
// of the file, and moves their first bytes behind the header.
func (f *File) tile(from, size int64) error {
	if from%align != 0 {
		return fmt.Errorf("%w: its elements begin at byte %d, which is no multiple of %d: write it again with a "+
			"present version of safetensors", ErrFormat, from, align)
	}
	end := int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.First != end {
			return fmt.Errorf("%w: tensor %s: it begins at byte %d of the elements, and the tensors before it end at "+
				"byte %d: tensors overlap or leave a gap", ErrFormat, t.Name, t.First, end)
		}
		if t.Bytes > size-from-end {
			return fmt.Errorf("%w: tensor %s: it ends after the file, which has %d bytes", ErrFormat, t.Name, size)
		}
		end, t.First = end+t.Bytes, from+t.First
	}
	if from+end != size {
		return fmt.Errorf("%w: %d bytes follow its last tensor", ErrFormat, size-from-end)
	}
	return nil
}

// Floats reads the elements of a tensor of type F32, F16 or BF16. The caller owns the result. An
// ErrTensor says that there is no such tensor, or names its type.
func (f *File) Floats(name string) ([]float32, error) {
	i := slices.IndexFunc(f.Tensors, func(t Tensor) bool { return t.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("tensor %s: %w", name, ErrTensor)
	}
	t := f.Tensors[i]
	if _, _, known := quant.Block(t.Type); !known {
		return nil, fmt.Errorf("tensor %s: %w of floats: it is of %s, convert it to F32, F16 or BF16", name, ErrTensor,
			t.Type)
	}
	data := make([]byte, t.Bytes)
	if err := readAt(f.r, data, t.First); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", name, err)
	}
	values := make([]float32, t.Bytes/elements[t.Type])
	if err := quant.Decode(t.Type, values, data); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", name, err)
	}
	return values, nil
}

// Values are a tensor to write, of type F32.
type Values struct {
	Name  string
	Shape []int64
	Of    []float32 // as many as Shape says
}

// Write writes a file of tensors with different names, in the order of their names. The Python
// package of the format writes the same bytes. It keeps nothing.
func Write(w io.Writer, all []Values) error {
	all = slices.SortedFunc(slices.Values(all), func(a, b Values) int { return strings.Compare(a.Name, b.Name) })
	header, end := []byte{'{'}, int64(0)
	for i, v := range all {
		n, err := bytesOf(F32, v.Shape)
		if err == nil {
			err = checkName(v.Name)
		}
		if err != nil || n != 4*int64(len(v.Of)) || i > 0 && v.Name == all[i-1].Name {
			return fmt.Errorf("write tensor %.100q: %w: %d elements of shape %v: see that the shape has as many, and "+
				"that no other has the name", v.Name, ErrTensor, len(v.Of), v.Shape)
		}
		shape := v.Shape
		if shape == nil {
			shape = []int64{}
		}
		name, err := json.Marshal(v.Name)
		if err != nil {
			return fmt.Errorf("write tensor %.100q: %w", v.Name, err)
		}
		of, err := json.Marshal(entry{F32, shape, []int64{end, end + n}})
		if err != nil {
			return fmt.Errorf("write tensor %.100q: %w", v.Name, err)
		}
		if i > 0 {
			header = append(header, ',')
		}
		header = append(append(append(header, name...), ':'), of...)
		end += n
	}
	header = append(header, '}')
	for len(header)%align != 0 {
		header = append(header, ' ')
	}
	if _, err := w.Write(append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header...)); err != nil {
		return fmt.Errorf("write the header of tensors: %w", err)
	}
	for _, v := range all {
		data := make([]byte, 0, 4*len(v.Of))
		for _, x := range v.Of {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(x))
		}
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("write tensor %s: %w", v.Name, err)
		}
	}
	return nil
}
