package export

import (
	"bytes"
	"io"

	"github.com/exoswarm/exoswarm/internal/base/numpy"
)

// npyFile is a table without ids.
type npyFile struct {
	w      io.Writer
	header int64 // its bytes
}

// newNpy begins a file of NumPy.
func newNpy(w io.Writer, r Result) (table, error) {
	var header bytes.Buffer
	if err := numpy.WriteHeader(&header, numpy.Descr(r.DType), r.Rows, int64(r.Width)); err != nil {
		return nil, err
	}
	_, err := w.Write(header.Bytes())
	return npyFile{w, int64(header.Len())}, err
}

// write implements table.
func (f npyFile) write(rows []byte) error {
	_, err := f.w.Write(rows)
	return err
}

// close implements table.
func (f npyFile) close() error { return nil }
