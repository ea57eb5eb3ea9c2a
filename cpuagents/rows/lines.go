package rows

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/exoswarm/exoswarm/cpuagents/fault"
)

// lineBuffer is the read-ahead of a text in bytes. A job has up to 256 texts open.
const lineBuffer = 64 << 10

// Lines reads a text line by line. The text may be UTF-16, and its lines may end with CR. It holds its
// read-ahead and at most one line in memory. One
// goroutine uses it. A line longer than the read-ahead is copied; little more than MaxRecord bytes
// of it are kept.
type Lines struct {
	name   string
	buf    *bufio.Reader
	Number uint64 // of the last line that Next returned, from 1
	begun  bool
}

// NewLines returns the lines of r. Errors name the text by name.
func NewLines(name string, r io.Reader) Lines {
	return Lines{name: name, buf: bufio.NewReaderSize(Text(r), lineBuffer)}
}

// Next returns the next line with its line end, or io.EOF. The line is valid until the next call. A
// line of more than MaxRecord bytes is read to its end: long is true, and line holds only its
// beginning.
func (l *Lines) Next() (line []byte, long bool, err error) {
	line, err = l.buf.ReadSlice('\n')
	if !l.begun {
		if l.begun = true; endsWithCR(line) {
			l.buf = bufio.NewReaderSize(lineEnds{io.MultiReader(bytes.NewReader(bytes.Clone(line)), l.buf)}, lineBuffer)
			line, err = l.buf.ReadSlice('\n')
		}
	}
	if errors.Is(err, bufio.ErrBufferFull) {
		// ReadSlice reuses its buffer, so the pieces of a long line are copied.
		whole := append([]byte{}, line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if line, err = l.buf.ReadSlice('\n'); len(whole) <= MaxRecord {
				whole = append(whole, line...)
			}
		}
		// The rest of a line that is too long is read and dropped.
		line, long = whole, len(whole) > MaxRecord
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil // the last line needs no line end
	}
	if err != nil {
		if !errors.Is(err, io.EOF) {
			err = fault.IO("read", l.name, err)
		}
		return nil, false, err
	}
	l.Number++
	return line, long, nil
}
