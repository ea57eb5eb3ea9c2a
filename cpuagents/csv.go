package cpuagents

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// csvReader reads the rows of one file. It holds at most one record and its read-ahead in memory.
type csvReader struct {
	spec    ColumnSpec
	src     io.Closer
	lines   lines
	hold    *hold
	ahead   []byte // lines that were read ahead while a quote was open
	at      int    // in ahead: the next line
	tooLong bool   // behind them stands a line that is too long
	first   uint64 // line of the last record
	second  int    // in ahead: the second line of the last record; -1: it has one
	number  uint64 // of the last row
	columns []int  // position of the timestamp, then of the features
	width   int    // columns of the header
	clock   Clock
	order   order
}

// newCSVReader reads the header. The reader owns src from here on, also when an error is returned.
func newCSVReader(name string, src io.ReadCloser, spec ColumnSpec, h *hold) (*csvReader, error) {
	r := &csvReader{spec: spec, src: src, lines: newLines(name, src), hold: h}
	if err := r.header(); err != nil {
		_ = src.Close()
		return nil, err
	}
	return r, nil
}

func (r *csvReader) header() error {
	record, problem, err := r.record()
	if errors.Is(err, io.EOF) {
		return inputError("%s: the file is empty: it must begin with a header such as %s,%s", r.lines.name, r.spec.Timestamp, strings.Join(r.spec.Features, ","))
	}
	if err != nil {
		return err
	}
	if problem != "" {
		return inputError("%s: line %d: header: %s", r.lines.name, r.lines.number, problem)
	}
	names, err := split(bytes.TrimPrefix(record, []byte("\xef\xbb\xbf")))
	if err != nil {
		return inputError("%s: line 1: header: %v", r.lines.name, err)
	}
	r.width = len(names)
	for _, want := range append([]string{r.spec.Timestamp}, r.spec.Features...) {
		at := -1
		for i, n := range names {
			if strings.TrimSpace(n) != want {
				continue
			}
			if at >= 0 {
				return inputError("%s: line 1: column %q appears twice: rename one of them", r.lines.name, want)
			}
			at = i
		}
		if at < 0 {
			return inputError("%s: line 1: no column %q; the file has %s: name the columns in the swarm spec (timestamp, features)", r.lines.name, want, quoteAll(names))
		}
		r.columns = append(r.columns, at)
	}
	return nil
}

func quoteAll(names []string) string {
	const most = 12
	var b strings.Builder
	for i, n := range names {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(names)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.QuoteToGraphic(n[:min(len(n), 40)]))
	}
	return b.String()
}

// next returns the next valid row, or a reject, or io.EOF. The row's features are the caller's.
func (r *csvReader) next() (row, *reject, error) {
	for {
		record, problem, err := r.record()
		if err != nil {
			return row{}, nil, err
		}
		if problem == "" && len(record) == 0 {
			continue // an empty line is no row
		}
		r.number++
		if problem == "" {
			var out row
			if out, problem = r.parse(record); problem == "" {
				return out, nil, nil
			}
			if r.second >= 0 {
				// The quote was a stray one that found a partner lines away: what lies between are rows of their own.
				problem = r.unread()
			}
		}
		return row{}, &reject{Series: r.lines.name, Row: r.number, Line: r.first, Reason: problem}, nil
	}
}

func (r *csvReader) close() error { return r.src.Close() }

// parse turns a record into a row, or says what is wrong with it.
func (r *csvReader) parse(record []byte) (row, string) {
	if !utf8.Valid(record) {
		return row{}, "it is not valid UTF-8"
	}
	fields, err := split(record)
	if err != nil {
		return row{}, err.Error()
	}
	if len(fields) != r.width {
		return row{}, fmt.Sprintf("it has %d fields, the header has %d", len(fields), r.width)
	}
	out := row{number: r.number, timestamp: strings.TrimSpace(fields[r.columns[0]]), features: make([]float32, len(r.columns)-1), values: make([]float64, len(r.columns)-1)}
	if problem := r.clock.stamp(&out); problem != "" {
		return row{}, problem
	}
	for i, c := range r.columns[1:] {
		text := strings.TrimSpace(fields[c])
		if text == "" {
			return row{}, fmt.Sprintf("column %q is empty", r.spec.Features[i])
		}
		v, problem := parseFeature(r.spec.Features[i], text)
		if problem != "" {
			return row{}, problem
		}
		out.values[i] = v
		out.features[i] = float32(v)
	}
	if problem := r.order.check(&out); problem != "" && !r.spec.AnyOrder {
		return row{}, problem
	}
	out.timestamp = strings.Clone(out.timestamp) // a part of the record, which may be a megabyte
	return out, ""
}

// split cuts a record into fields. Most records have no quote and are cut at the commas; the rest is RFC 4180's business.
func split(record []byte) ([]string, error) {
	text := string(record)
	if !strings.Contains(text, `"`) {
		return strings.Split(text, ","), nil
	}
	c := csv.NewReader(strings.NewReader(text))
	c.FieldsPerRecord = -1
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

// record returns the next record without its line end. A record that cannot be one gives the reason instead, and reading
// goes on with the line after its first.
func (r *csvReader) record() (record []byte, problem string, err error) {
	if r.at == len(r.ahead) {
		r.hold.shrink(int64(cap(r.ahead)))
		r.ahead, r.at = nil, 0
	}
	line, long, err := r.physical()
	if err != nil {
		return nil, "", err
	}
	r.first, r.second = r.lines.number, -1
	if long {
		return nil, fmt.Sprintf("the line is longer than %d bytes", maxRecord), nil
	}
	if bytes.Count(line, []byte{'"'})%2 == 0 {
		return trimEnd(line), "", nil
	}
	// A quote is open at the end of the line: the record goes on, if the quote ever closes.
	all := append([]byte{}, line...)
	r.second = r.at
	for len(all) <= maxRecord {
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

// keep puts a line behind those that were read ahead.
func (r *csvReader) keep(line []byte) error {
	if need := len(r.ahead) + len(line); need > cap(r.ahead) {
		grown := make([]byte, len(r.ahead), max(need, 2*cap(r.ahead), 4<<10))
		if err := r.hold.grow(int64(cap(grown) - cap(r.ahead))); err != nil {
			return err
		}
		copy(grown, r.ahead)
		r.ahead = grown
	}
	r.ahead = append(r.ahead, line...)
	r.at = len(r.ahead)
	return nil
}

// unread gives back the lines of the last record but its first, and says what is wrong with that one.
func (r *csvReader) unread() (problem string) {
	r.at, r.second = r.second, -1
	r.lines.number = r.first
	return "a quote that opens in it never closes"
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}

// physical returns the next line with its line end, valid until the next call.
func (r *csvReader) physical() (line []byte, long bool, err error) {
	switch {
	case r.at < len(r.ahead):
		line = r.ahead[r.at:]
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line = line[:end+1]
		}
		r.at += len(line)
		r.lines.number++
		return line, false, nil
	case r.tooLong:
		r.tooLong = false
		r.lines.number++
		return nil, true, nil
	}
	return r.lines.next()
}
