package numpy

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// ErrArchive is wrapped by the errors for input that is not an archive of arrays, or that lacks an
// array or has one of another type or length. The text names the array.
var ErrArchive = errors.New("not a .npz archive that can be read")

const maxMembers = 256

// Archive is the members of a .npz file. The caller does not change the data.
type Archive struct {
	arrays map[string]*Array
	texts  map[string][]byte
}

// ReadArchive reads an archive whose members have at most limit bytes together. Packed members are
// read too; limit bounds what they unpack to.
func ReadArchive(data []byte, limit int64) (*Archive, error) {
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrArchive, err)
	}
	if len(z.File) > maxMembers {
		return nil, fmt.Errorf("%w: it has %d members: use at most %d", ErrArchive, len(z.File), maxMembers)
	}
	a := &Archive{arrays: map[string]*Array{}, texts: map[string][]byte{}}
	for _, f := range z.File {
		n, err := a.read(f, limit)
		if err != nil {
			return nil, fmt.Errorf("%w: %q: %w", ErrArchive, f.Name, err)
		}
		limit -= n
	}
	return a, nil
}

// read reads a member of at most limit bytes, and returns its size.
func (a *Archive) read(f *zip.File, limit int64) (int64, error) {
	r, err := f.Open()
	if err != nil {
		return 0, err
	}
	defer r.Close()
	if name, is := strings.CutSuffix(f.Name, ".npy"); is {
		array, err := Read(r, limit)
		if err != nil {
			return 0, err
		}
		a.arrays[name] = array
		return int64(len(array.Data)), nil
	}
	name, is := strings.CutSuffix(f.Name, ".json")
	if !is {
		return 0, errors.New("members are .npy or .json")
	}
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
	switch {
	case err != nil:
		return 0, err
	case int64(len(text)) > limit:
		return 0, fmt.Errorf("the archive has more than %d bytes", limit)
	}
	a.texts[name] = text
	return int64(len(text)), nil
}

// Has reports whether there is an array of a name.
func (a *Archive) Has(name string) bool { return a.arrays[name] != nil }

// JSON decodes a document into v. A missing document is an error.
func (a *Archive) JSON(name string, v any) error {
	text, ok := a.texts[name]
	if !ok {
		return fmt.Errorf("%w: there is no %s.json", ErrArchive, name)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("%w: %s.json: %w", ErrArchive, name, err)
	}
	return nil
}

// Number is an element of an array.
type Number interface {
	uint8 | int32 | uint32 | uint64 | int64 | float32 | float64
}

// Values returns the elements of an array, in row-major order, and the length of its rows: 1 for an
// array of one dimension. The type of the elements must be T.
func Values[T Number](a *Archive, name string) (values []T, width int, err error) {
	array := a.arrays[name]
	if array == nil {
		return nil, 0, fmt.Errorf("%w: there is no array %s", ErrArchive, name)
	}
	var zero T
	want := Descr(reflect.TypeOf(zero).String())
	if got := array.Type; got[1:] != want[1:] {
		return nil, 0, fmt.Errorf("%w: array %s has elements of %s: use %s", ErrArchive, name, got, want)
	}
	width = 1
	switch len(array.Shape) {
	case 1:
	case 2:
		width = int(array.Shape[1])
	default:
		return nil, 0, fmt.Errorf("%w: array %s has %d dimensions: use 1 or 2", ErrArchive, name, len(array.Shape))
	}
	values = make([]T, len(array.Data)/int(reflect.TypeOf(zero).Size()))
	if _, err := binary.Decode(array.Data, binary.LittleEndian, values); err != nil {
		return nil, 0, fmt.Errorf("%w: array %s: %w", ErrArchive, name, err)
	}
	return values, width, nil
}

// ArchiveWriter writes an archive. After an error all further calls do nothing. One goroutine uses
// it.
type ArchiveWriter struct {
	zip *zip.Writer
	err error
}

// NewArchive returns a writer of an archive to w. The caller calls Close at its end.
func NewArchive(w io.Writer) *ArchiveWriter { return &ArchiveWriter{zip: zip.NewWriter(w)} }

// Array adds an array. values is a slice of a Number. With a width of 0 the array has one
// dimension, and otherwise rows of width elements.
func (w *ArchiveWriter) Array(name string, values any, width int) {
	if w.err != nil {
		return
	}
	v := reflect.ValueOf(values)
	array := &Array{Type: Descr(v.Type().Elem().String()), Shape: []int64{int64(v.Len())}}
	if width > 0 {
		array.Shape = []int64{int64(v.Len() / width), int64(width)}
	}
	if v.Len() > 0 {
		if array.Data, w.err = binary.Append(nil, binary.LittleEndian, values); w.err != nil {
			return
		}
	}
	if to := w.member(name + ".npy"); to != nil {
		w.err = Write(to, array)
	}
}

// File adds the content of a .npy file.
func (w *ArchiveWriter) File(name string, r io.Reader) {
	if to := w.member(name + ".npy"); to != nil {
		_, w.err = io.Copy(to, r)
	}
}

// JSON adds a document.
func (w *ArchiveWriter) JSON(name string, v any) {
	if to := w.member(name + ".json"); to != nil {
		w.err = json.NewEncoder(to).Encode(v)
	}
}

// member starts a member; nil after an error. Members are not packed: arrays of floats pack badly,
// and the two ends are on one network.
func (w *ArchiveWriter) member(name string) (to io.Writer) {
	if w.err == nil {
		to, w.err = w.zip.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Store})
	}
	return to
}

// Close ends the archive, and returns the first error.
func (w *ArchiveWriter) Close() error {
	return errors.Join(w.err, w.zip.Close())
}
