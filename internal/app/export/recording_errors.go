package export

import "errors"

// Errors of Add and of New, for errors.Is.
var (
	// ErrRecordingFormat is wrapped by errors of files that are neither Arrow's nor NumPy's, and of frames
	// that a file of NumPy cannot have.
	ErrRecordingFormat = errors.New("no such recording")
	// ErrFrame is wrapped by errors of a frame that has other columns, or another number of rows,
	// than the first.
	ErrFrame = errors.New("another frame")
)
