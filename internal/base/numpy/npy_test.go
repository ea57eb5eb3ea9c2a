package numpy

import (
	"bytes"
	"errors"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

// TestRoundTrip: an array that is written is read again, whatever its shape.
func TestRoundTrip(t *testing.T) {
	for _, a := range []*Array{
		{Type: "<f4", Shape: []int64{3}, Data: make([]byte, 12)},
		{Type: "<f8", Shape: []int64{2, 3}, Data: bytes.Repeat([]byte{7}, 48)},
		{Type: "<u1", Shape: []int64{5}, Data: []byte("hello")},
		{Type: "<i8", Shape: []int64{0}, Data: []byte{}},
		{Type: "<u4", Shape: []int64{}, Data: []byte{1, 0, 0, 0}},
	} {
		var b bytes.Buffer
		if err := Write(&b, a); err != nil {
			t.Fatalf("Write %+v: %v", a, err)
		}
		if head := b.Len() - len(a.Data); head%64 != 0 {
			t.Errorf("%+v: the elements begin at byte %d, want a multiple of 64", a, head)
		}
		got, err := Read(&b, 100)
		if err != nil {
			t.Fatalf("Read %+v: %v", a, err)
		}
		if got.Data == nil {
			got.Data = []byte{}
		}
		if !reflect.DeepEqual(got, a) {
			t.Errorf("read %+v, want %+v", got, a)
		}
	}
}

// numpy is what NumPy 2 writes for numpy.array([1, 2], dtype='<f4').
const numpy = "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }" +
	"                                                            \n" + "\x00\x00\x80?\x00\x00\x00@"

// TestNumPy: a file that NumPy wrote is read and written with the same bytes.
func TestNumPy(t *testing.T) {
	a, err := Read(strings.NewReader(numpy), 8)
	if err != nil {
		t.Fatalf("Read: %v", err)
	}
	var b bytes.Buffer
	if err := Write(&b, a); err != nil || b.String() != numpy {
		t.Errorf("Write: %q, error %v; want the bytes of NumPy", b.String(), err)
	}
}

// TestRefused: a file that is no array, or one that is not supported, is refused with ErrFormat.
func TestRefused(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "no magic": "PK\x03\x04aaaaaaaaaaaa", "version": "\x93NUMPY\x09\x00v\x00{",
		"short":    numpy[:len(numpy)-1],
		"long":     numpy + "x",
		"fortran":  strings.Replace(numpy, "False", "True ", 1),
		"big":      strings.Replace(numpy, "<f4", ">f4", 1),
		"complex":  strings.Replace(numpy, "<f4", "<c8", 1),
		"shape":    strings.Replace(numpy, "(2,)", "(-2)", 1),
		"overflow": strings.Replace(numpy, "(2,), }      ", "(99999999999,), }", 1),
	} {
		if a, err := Read(strings.NewReader(text), 1<<20); !errors.Is(err, ErrFormat) {
			t.Errorf("%s: read %+v, error %v; want ErrFormat", name, a, err)
		}
	}
	for _, a := range []*Array{
		{Type: "<c8", Shape: []int64{1}, Data: make([]byte, 8)},
		{Type: "<f4", Shape: []int64{2}, Data: make([]byte, 4)},
	} {
		if err := Write(&bytes.Buffer{}, a); !errors.Is(err, ErrFormat) {
			t.Errorf("Write %+v: %v; want ErrFormat", a, err)
		}
	}
}

// TestReaderFails: an error of the reader is no fault of the file.
func TestReaderFails(t *testing.T) {
	for n := range len(numpy) {
		_, err := Read(io.MultiReader(strings.NewReader(numpy[:n]), iotest.ErrReader(io.ErrClosedPipe)), 1<<20)
		if !errors.Is(err, io.ErrClosedPipe) || errors.Is(err, ErrFormat) {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
}

// FuzzRead: no input makes Read fail other than with an error, or take more memory than its limit;
// what it reads is written and read again.
func FuzzRead(f *testing.F) {
	f.Add([]byte(numpy))
	f.Add([]byte(strings.Replace(numpy, "(2,)", "()", 1)))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := Read(bytes.NewReader(data), 1<<16)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := Write(&b, a); err != nil {
			t.Fatalf("Write %+v: %v", a, err)
		}
		again, err := Read(&b, math.MaxInt32)
		if err != nil || again.Type != a.Type || !bytes.Equal(again.Data, a.Data) {
			t.Fatalf("read %+v again: %+v, error %v", a, again, err)
		}
	})
}
