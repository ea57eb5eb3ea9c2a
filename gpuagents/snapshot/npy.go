package snapshot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// npyMagic begins a file of version 1.0 of NumPy's format.
const npyMagic = "\x93NUMPY\x01\x00"

// npyAlign is the alignment of the data in a file in bytes, which is that of NumPy, so that a file
// may be mapped.
const npyAlign = 64

// array is the content of a .npy header: rows of width elements, little-endian, one row after the
// other.
type array struct {
	descr       string
	rows, width int64
}

// element has the names of an element type in manifests and in files.
type element struct{ dtype, descr string }

// elements are the element types. NumPy has no bfloat16: its bits are in words of 16 bits.
var elements = map[kernels.Elem]element{
	kernels.F32: {"float32", "<f4"}, kernels.U32: {"uint32", "<u4"}, kernels.U64: {"uint64", "<u8"},
	kernels.U8: {"uint8", "|u1"}, kernels.BF16: {"bfloat16", "<u2"}, kernels.I64: {"int64", "<i8"},
}

// elemOf returns the element type of a name in a manifest.
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
	dict := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%d, %d), }", a.descr, a.rows, a.width)
	size := (len(npyMagic) + 2 + len(dict) + 1 + npyAlign - 1) / npyAlign * npyAlign
	b := make([]byte, 0, size)
	b = append(b, npyMagic...)
	b = binary.LittleEndian.AppendUint16(b, uint16(size-len(npyMagic)-2))
	b = append(b, dict...)
	b = append(b, bytes.Repeat([]byte{' '}, size-len(b)-1)...)
	return append(b, '\n')
}

// readHeader reads a header of the form that header writes, with any padding, and not a byte more.
// For any bytes it returns an array, an ErrCorrupt, or the error of r.
func readHeader(r io.Reader) (a array, err error) {
	head := make([]byte, len(npyMagic)+2)
	if _, err := io.ReadFull(r, head); err != nil {
		return a, short(err)
	}
	if string(head[:len(npyMagic)]) != npyMagic {
		return a, fmt.Errorf("%w: not a .npy file of version 1.0", ErrCorrupt)
	}
	text := make([]byte, binary.LittleEndian.Uint16(head[len(npyMagic):]))
	if _, err := io.ReadFull(r, text); err != nil {
		return a, short(err)
	}
	dict := strings.TrimRight(string(text), " \n")
	rest, ok := strings.CutPrefix(dict, "{'descr': '")
	a.descr, rest, _ = strings.Cut(rest, "'")
	n := 0
	if ok {
		n, _ = fmt.Sscanf(rest, ", 'fortran_order': False, 'shape': (%d, %d), }", &a.rows, &a.width)
	}
	// What was understood must be all that there is.
	if n != 2 || a.rows < 0 || a.width < 1 || strings.TrimRight(string(a.header()[len(npyMagic)+2:]), " \n") != dict {
		return array{}, fmt.Errorf("%w: a .npy header that this program does not write: %.100q", ErrCorrupt, dict)
	}
	return a, nil
}

// short turns the end of a file in the middle of a read into an ErrCorrupt.
func short(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF { //nolint:errorlint // io.ReadFull returns these values themselves
		return fmt.Errorf("%w: it ends early", ErrCorrupt)
	}
	return err
}
