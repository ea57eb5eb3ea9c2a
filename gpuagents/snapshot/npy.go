package snapshot

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/numpy"
)

// array is the content of a .npy header: rows of width little-endian elements, in row order.
type array struct {
	descr       string
	rows, width int64
}

// element has the names of an element type in manifests and in files.
type element struct{ dtype, descr string }

// elements are the element types. NumPy has no bfloat16: its bits are stored in words of 16 bits.
var elements = map[kernels.Elem]element{
	kernels.F32: {"float32", "<f4"}, kernels.U32: {"uint32", "<u4"}, kernels.U64: {"uint64", "<u8"},
	kernels.U8: {"uint8", "<u1"}, kernels.BF16: {"bfloat16", "<u2"}, kernels.I64: {"int64", "<i8"},
}

func elemOf(dtype string) (kernels.Elem, bool) {
	for e, names := range elements {
		if names.dtype == dtype {
			return e, true
		}
	}
	return 0, false
}

// header returns the bytes before the data. They depend on the array only.
func (a array) header() []byte {
	var b bytes.Buffer
	_ = numpy.WriteHeader(&b, a.descr, a.rows, a.width) // a buffer takes all bytes, and each descr is in elements
	return b.Bytes()
}

// readHeader reads a header of the form that header writes, with any padding, and not a byte more.
// For any bytes it returns an array, an ErrCorrupt, or the error of r.
func readHeader(r io.Reader) (array, error) {
	var read bytes.Buffer
	of, err := numpy.ReadHeader(io.TeeReader(r, &read))
	if errors.Is(err, numpy.ErrFormat) {
		return array{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if err != nil {
		return array{}, err
	}
	if len(of.Shape) == 2 && of.Shape[1] > 0 {
		a := array{of.Type, of.Shape[0], of.Shape[1]}
		version, text := split(read.Bytes())
		wantVersion, want := split(a.header())
		if bytes.Equal(version, wantVersion) && bytes.Equal(text, want) {
			return a, nil
		}
	}
	return array{}, fmt.Errorf("%w: a .npy header that this program does not write: %.100q", ErrCorrupt, read.Bytes())
}

// split returns the version and the text of a header, without its padding.
func split(header []byte) (version, text []byte) {
	return header[:8], bytes.TrimRight(header[10:], " \n")
}

// short turns an early end of a file into an ErrCorrupt.
func short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // io.ReadFull returns these values themselves
		return fmt.Errorf("%w: it ends early", ErrCorrupt)
	}
	return err
}
