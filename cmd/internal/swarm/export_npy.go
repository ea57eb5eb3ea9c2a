package swarm

import (
	"bytes"
	"fmt"
	"io"

	"github.com/exoswarm/exoswarm/internal/base/numpy"
)

// npyFile is a table without ids.
type npyFile struct {
	w      io.Writer
	header int64 // its bytes
}

func newNpy(w io.Writer, r variableInfo) (tableFile, error) {
	var header bytes.Buffer
	if err := numpy.WriteHeader(&header, numpy.Descr(r.DType), r.Rows, int64(r.Width)); err != nil {
		return nil, err
	}
	_, err := w.Write(header.Bytes())
	return npyFile{w, int64(header.Len())}, err
}

func (f npyFile) write(rows []byte) error {
	_, err := f.w.Write(rows)
	return err
}

func (f npyFile) close() error { return nil }

// recordedNpy is one column of all frames: of shape [frames, rows] or [frames, rows, width].
type recordedNpy struct{ w io.Writer }

func newRecordedNpy(w io.Writer, o recordingOptions, columns []recordColumn, rows int) (file, error) {
	if len(columns) != 1 {
		names := make([]string, len(columns))
		for i, c := range columns {
			names[i] = c.Name
		}
		return nil, fmt.Errorf("%w: a .npy file has one variable, there are %d, %v: choose one, or use .arrow",
			errRecordingFormat, len(columns), names)
	}
	c := columns[0]
	shape := []int64{int64(o.Frames), int64(rows)}
	if c.Width > 1 {
		shape = append(shape, int64(c.Width))
	}
	return recordedNpy{w}, numpy.WriteHeader(w, numpy.Descr(kindOf(c.Values)), shape...)
}

func (f recordedNpy) add(frame recordFrame) error {
	_, err := f.w.Write(frameBytes(frame.Columns[0].Values))
	return err
}

func (recordedNpy) close() error { return nil }
