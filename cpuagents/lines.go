package cpuagents

import (
	"bufio"
	"errors"
	"io"

	"github.com/exoswarm/exoswarm/cpuagents/fault"
)

// lineBuffer is the read-ahead of a text in bytes: 256 of them are open side by side.
const lineBuffer = 64 << 10

// lines reads a text line by line and holds at most one of them in memory.
type lines struct {
	name   string
	buf    *bufio.Reader
	number uint64 // of the last line taken, from 1
}

func newLines(name string, r io.Reader) lines {
	return lines{name: name, buf: bufio.NewReaderSize(r, lineBuffer)}
}

// next returns the next line with its line end, valid until the next call, or io.EOF. Of a line over maxRecord it reads
// everything and keeps nothing.
func (l *lines) next() (line []byte, long bool, err error) {
	line, err = l.buf.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		whole := append([]byte{}, line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if line, err = l.buf.ReadSlice('\n'); len(whole) <= maxRecord {
				whole = append(whole, line...)
			}
		}
		line, long = whole, len(whole) > maxRecord
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
	l.number++
	return line, long, nil
}
