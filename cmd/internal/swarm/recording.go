package swarm

import (
	"errors"
	"fmt"
	"io"
	"time"
	"unsafe"
)

// Errors of add and of newRecorder, for errors.Is.
var (
	// errRecordingFormat is wrapped by errors of files that are neither Arrow's nor NumPy's, and of
	// frames that a file of NumPy cannot have.
	errRecordingFormat = errors.New("no such recording")
	// errFrame is wrapped by errors of a frame that has other columns, or another number of rows,
	// than the first.
	errFrame = errors.New("another frame")
)

// recordColumn is one value of all rows of a frame.
type recordColumn struct {
	Name string
	// Values is a []uint8, []uint32, []uint64, []int64, []float32 or []float64 with Width values a
	// row, row by row.
	Values any
	Width  int
	// Valid reports for each row whether it has a value; nil: all have. Only columns with a Width of
	// 1 may have it. A file of NumPy has the number of Values in its place.
	Valid []bool
}

type recordFrame struct {
	Tick uint64    // steps since the recording began; used unless Options.Timed
	Time time.Time // used if Options.Timed
	// IDs has the number of each row, such as the id of an agent. Frames of one row may leave it
	// empty.
	IDs     []uint32
	Columns []recordColumn
}

type recordingOptions struct {
	Format fileFormat
	// IDName is the name of the column of IDs; empty: there is none.
	IDName string
	// Timed says that frames have a time, and no tick. A file of NumPy has neither.
	Timed bool
	// Frames is the number of frames that a file of NumPy will have, which is in its header. Arrow
	// files do not need it.
	Frames int
}

// recorder is a file that is being written. One goroutine uses it.
type recorder struct {
	o     recordingOptions
	w     io.Writer
	rows  int // of each frame
	first []recordColumn
	file  file // nil before the first frame
	n     int  // frames
}

type file interface {
	// add appends a frame, which it does not keep.
	add(f recordFrame) error
	// close ends the file.
	close() error
}

// newRecorder starts a recording. Nothing is written before the first frame.
func newRecorder(w io.Writer, o recordingOptions) (*recorder, error) {
	switch {
	case o.Format != arrowFormat && o.Format != npyFormat:
		return nil, fmt.Errorf("%w: %q: use a file that ends with .arrow or .npy", errRecordingFormat, o.Format)
	case o.Format == npyFormat && o.Frames < 1:
		return nil, fmt.Errorf("%w: the header of a .npy file has the number of frames, which is not known: use .arrow",
			errRecordingFormat)
	}
	return &recorder{o: o, w: w}, nil
}

// Add appends a frame. All frames have the columns and the number of rows of the first one.
func (r *recorder) Add(f recordFrame) error {
	if err := r.check(f); err != nil {
		return err
	}
	if r.file == nil {
		var err error
		if r.o.Format == npyFormat {
			r.file, err = newRecordedNpy(r.w, r.o, f.Columns, r.rows)
		} else {
			r.file, err = newRecordedArrow(r.w, r.o, f.Columns)
		}
		if err != nil {
			return err
		}
		for _, c := range f.Columns {
			r.first = append(r.first, recordColumn{Name: c.Name, Values: kindOf(c.Values), Width: c.Width})
		}
	}
	if err := r.file.add(f); err != nil {
		return fmt.Errorf("write frame %d: %w", r.n, err)
	}
	r.n++
	return nil
}

// check compares the frame with itself, and with the first one.
func (r *recorder) check(f recordFrame) error {
	if len(f.Columns) == 0 {
		return fmt.Errorf("%w: frame %d has no column", errFrame, r.n)
	}
	rows := -1
	for i, c := range f.Columns {
		n, size := lengthOf(c.Values)
		if size == 0 || c.Width < 1 || n%c.Width != 0 {
			return fmt.Errorf("%w: column %s of frame %d has %d values of %T, want a multiple of %d numbers", errFrame,
				c.Name, r.n, n, c.Values, c.Width)
		}
		n /= c.Width
		if rows < 0 {
			rows = n
		}
		switch {
		case n != rows:
			return fmt.Errorf("%w: column %s of frame %d has %d rows, column %s %d", errFrame, c.Name, r.n, n,
				f.Columns[0].Name, rows)
		case c.Valid != nil && (c.Width != 1 || len(c.Valid) != n):
			return fmt.Errorf("%w: column %s of frame %d has %d rows and %d marks", errFrame, c.Name, r.n, n,
				len(c.Valid))
		case r.first == nil:
		case i >= len(r.first) || c.Name != r.first[i].Name || c.Width != r.first[i].Width ||
			kindOf(c.Values) != r.first[i].Values:
			return fmt.Errorf("%w: column %d of frame %d is %s, %d of %T a row, which the first frame has not",
				errFrame, i, r.n, c.Name, c.Width, c.Values)
		}
	}
	switch {
	case r.first != nil && (rows != r.rows || len(f.Columns) != len(r.first)):
		return fmt.Errorf("%w: frame %d has %d rows of %d columns, the first one %d of %d", errFrame, r.n, rows,
			len(f.Columns), r.rows, len(r.first))
	case r.o.IDName != "" && len(f.IDs) != rows:
		return fmt.Errorf("%w: frame %d has %d rows and %d ids", errFrame, r.n, rows, len(f.IDs))
	}
	r.rows = rows
	return nil
}

// Frames returns the number of frames so far.
func (r *recorder) Frames() int { return r.n }

// Close ends the file, which is complete then. It does not close the writer. A recording without a
// frame writes nothing.
func (r *recorder) Close() error {
	if r.file == nil {
		return nil
	}
	if r.o.Format == npyFormat && r.n != r.o.Frames {
		return fmt.Errorf("%w: %d frames of %d, which the header has", errFrame, r.n, r.o.Frames)
	}
	return r.file.close()
}

// kindOf returns the name of the type of numbers of values, as in float32; empty for others.
func kindOf(values any) string {
	switch values.(type) {
	case []uint8:
		return "uint8"
	case []uint32:
		return "uint32"
	case []uint64:
		return "uint64"
	case []int64:
		return "int64"
	case []float32:
		return "float32"
	case []float64:
		return "float64"
	}
	return ""
}

// lengthOf returns the number of values and the bytes of each; 0 bytes for what are no numbers.
func lengthOf(values any) (n, size int) {
	switch v := values.(type) {
	case []uint8:
		return len(v), 1
	case []uint32:
		return len(v), 4
	case []uint64:
		return len(v), 8
	case []int64:
		return len(v), 8
	case []float32:
		return len(v), 4
	case []float64:
		return len(v), 8
	}
	return 0, 0
}

// frameBytes returns the memory of values, which are little-endian on every machine that Exoswarm
// runs on.
func frameBytes(values any) []byte {
	switch v := values.(type) {
	case []uint8:
		return v
	case []uint32:
		return memoryOf(v)
	case []uint64:
		return memoryOf(v)
	case []int64:
		return memoryOf(v)
	case []float32:
		return memoryOf(v)
	case []float64:
		return memoryOf(v)
	}
	return nil
}

func memoryOf[T any](v []T) []byte {
	var one T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(v))), len(v)*int(unsafe.Sizeof(one)))
}
