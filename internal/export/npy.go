package export

import (
	"io"

	"github.com/exoswarm/exoswarm/internal/npy"
)

// descr are the names of NumPy for the types of elements.
var descr = map[string]string{"float32": "<f4", "uint32": "<u4", "uint64": "<u8", "int64": "<i8", "uint8": "|u1"}

// npyFile is a table without ids.
type npyFile struct{ w io.Writer }

// newNpy begins a file of NumPy.
func newNpy(w io.Writer, r Result) (table, error) {
	return npyFile{w}, npy.WriteHeader(w, descr[r.DType], r.Rows, int64(r.Width))
}

// write implements table.
func (f npyFile) write(rows []byte) error {
	_, err := f.w.Write(rows)
	return err
}

// close implements table.
func (f npyFile) close() error { return nil }
