package export

import (
	"fmt"
	"io"

	"github.com/exoswarm/exoswarm/internal/base/numpy"
)

// recordedNpy is one column of all frames: of shape [frames, rows] or [frames, rows, width].
type recordedNpy struct{ w io.Writer }

// newRecordedNpy begins a file of NumPy.
func newRecordedNpy(w io.Writer, o RecordingOptions, columns []Column, rows int) (file, error) {
	if len(columns) != 1 {
		names := make([]string, len(columns))
		for i, c := range columns {
			names[i] = c.Name
		}
		return nil, fmt.Errorf("%w: a .npy file has one variable, there are %d, %v: choose one, or use .arrow",
			ErrRecordingFormat, len(columns), names)
	}
	c := columns[0]
	shape := []int64{int64(o.Frames), int64(rows)}
	if c.Width > 1 {
		shape = append(shape, int64(c.Width))
	}
	return recordedNpy{w}, numpy.WriteHeader(w, numpy.Descr(kindOf(c.Values)), shape...)
}

// add implements file.
func (f recordedNpy) add(frame Frame) error {
	_, err := f.w.Write(frameBytes(frame.Columns[0].Values))
	return err
}

// close implements file.
func (recordedNpy) close() error { return nil }
