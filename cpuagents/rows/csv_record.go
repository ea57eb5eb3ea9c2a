package rows

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/cpuagents/access"
)

// Records cuts a CSV text into records. A quoted field may have line ends. If a quote does not
// close within MaxRecord bytes, only its first line is refused, and the lines that were read ahead
// are records again.
type Records struct {
	lines Lines
	hold  *access.Hold // of ahead
	// ahead has the lines that were read while a quote was open. They are read again, one by one,
	// after the record has been refused.
	ahead   []byte
	at      int    // the next line in ahead
	tooLong bool   // a line that is too long follows the lines in ahead
	first   uint64 // first line of the last record
	second  int    // the second line of the last record in ahead; -1 if it has one line
}

// NewRecords returns the records of src, with the header if there is one. The caller closes src
// after the last record. The read-ahead is taken from h.
func NewRecords(name string, src io.Reader, h *access.Hold) *Records {
	return &Records{lines: NewLines(name, src), hold: h}
}

// Line returns the number of the first line of the last record, from 1.
func (r *Records) Line() uint64 { return r.first }

// again makes record the next record once more. The caller has read it with the last call of
// Record, and nothing after it.
func (r *Records) again(record []byte) error {
	line := append(bytes.Clone(record), '\n')
	rest := bytes.Clone(r.ahead[r.at:])
	r.hold.Shrink(int64(cap(r.ahead)))
	r.ahead, r.at = nil, 0
	r.lines.Number = r.first - 1
	if err := r.keep(append(line, rest...)); err != nil {
		return err
	}
	r.at = 0
	return nil
}

// SplitRecord cuts a record into fields. Most records have no quote and are cut at the commas; the
// others are parsed as RFC 4180. The fields do not share the memory of record.
func SplitRecord(record []byte, comma rune) ([]string, error) {
	return appendFields(nil, record, comma)
}

// appendFields is SplitRecord into a slice whose fields are not used any more.
func appendFields(fields []string, record []byte, comma rune) ([]string, error) {
	text := string(record)
	if !strings.Contains(text, `"`) {
		fields = fields[:0]
		for {
			at, width := strings.IndexRune(text, comma), utf8.RuneLen(comma)
			if at < 0 {
				return append(fields, text), nil
			}
			fields = append(fields, text[:at])
			text = text[at+width:]
		}
	}
	c := csv.NewReader(strings.NewReader(text))
	c.Comma, c.FieldsPerRecord = comma, -1
	fields, err := c.Read()
	if err != nil {
		var pe *csv.ParseError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return nil, fmt.Errorf("its quotes are wrong: %w", err)
	}
	return fields, nil
}

// Record returns the next record without its line end, or io.EOF. The record is valid until the
// next call. A line that cannot begin a record gives a problem instead; reading continues with the
// line after it.
func (r *Records) Record() (record []byte, problem string, err error) {
	if r.at == len(r.ahead) {
		r.hold.Shrink(int64(cap(r.ahead)))
		r.ahead, r.at = nil, 0
	}
	line, long, err := r.physical()
	if err != nil {
		return nil, "", err
	}
	r.first, r.second = r.lines.Number, -1
	if long {
		return nil, fmt.Sprintf("the line is longer than %d bytes", MaxRecord), nil
	}
	// In RFC 4180 a quote inside a field is doubled, so an even number means that no quote is open.
	if bytes.Count(line, []byte{'"'})%2 == 0 {
		return trimEnd(line), "", nil
	}
	// A quote is open at the end of the line: the record continues if the quote closes later.
	all := append([]byte{}, line...)
	r.second = r.at
	for len(all) <= MaxRecord {
		from := r.at
		more, long, err := r.physical()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, "", err
		}
		if long {
			r.tooLong = true
		}
		if err != nil || long {
			break
		}
		// A line that came from ahead itself is in it already.
		if from == len(r.ahead) {
			if err := r.keep(more); err != nil {
				return nil, "", err
			}
		}
		all = append(all, more...)
		if bytes.Count(more, []byte{'"'})%2 == 1 {
			return trimEnd(all), "", nil
		}
	}
	return nil, r.unread(), nil
}

// keep appends a line to the read-ahead. It fails if the hold has no memory for the line, and keeps
// nothing then.
func (r *Records) keep(line []byte) error {
	if need := len(r.ahead) + len(line); need > cap(r.ahead) {
		size := max(need, 2*cap(r.ahead), 4<<10)
		if err := r.hold.Grow(int64(size - cap(r.ahead))); err != nil {
			return err
		}
		grown := make([]byte, len(r.ahead), size)
		copy(grown, r.ahead)
		r.ahead = grown
	}
	r.ahead = append(r.ahead, line...)
	r.at = len(r.ahead)
	return nil
}

// unread makes the lines of the last record readable again, except the first, and returns what is
// wrong with the first.
func (r *Records) unread() (problem string) {
	r.at, r.second = r.second, -1
	r.lines.Number = r.first
	return "a quote that opens in it never closes"
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}

// physical returns the next line with its line end, valid until the next call.
func (r *Records) physical() (line []byte, long bool, err error) {
	switch {
	case r.at < len(r.ahead):
		line = r.ahead[r.at:]
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line = line[:end+1]
		}
		r.at += len(line)
		r.lines.Number++
		return line, false, nil
	case r.tooLong:
		r.tooLong = false
		r.lines.Number++
		return nil, true, nil
	}
	return r.lines.Next()
}
