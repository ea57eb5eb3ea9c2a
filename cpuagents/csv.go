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

	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/internal/dialect"
)

// csvReader reads the rows of one file. It holds at most one record and its read-ahead in memory.
type csvReader struct {
	spec    ColumnSpec
	comma   rune
	head    string // the header, at most adviceBytes of it; for advice
	valid   bool   // it has had a valid row
	src     io.Closer
	lines   lines
	hold    *inputmem.Hold
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
func newCSVReader(name string, src io.ReadCloser, spec ColumnSpec, h *inputmem.Hold) (*csvReader, error) {
	r := &csvReader{spec: spec, comma: spec.CSV.Comma(), src: src, lines: newLines(name, src), hold: h}
	var err error
	if r.clock, err = NewClock(spec.CSV); err == nil {
		err = r.header()
	}
	if err != nil {
		_ = src.Close()
		return nil, err
	}
	return r, nil
}

func (r *csvReader) header() error {
	record, problem, err := r.record()
	for err == nil && problem == "" && len(record) == 0 && !r.spec.CSV.HasHeader() { // an empty line is no row
		record, problem, err = r.record()
	}
	if errors.Is(err, io.EOF) {
		if !r.spec.CSV.HasHeader() {
			return fault.Input("%s: the file is empty", r.lines.name)
		}
		return fault.Input("%s: the file is empty: it must begin with a header such as %s,%s", r.lines.name, r.spec.Timestamp, strings.Join(r.spec.Features, ","))
	}
	if err != nil {
		return err
	}
	if problem != "" {
		return fault.Input("%s: line %d: header: %s", r.lines.name, r.lines.number, problem)
	}
	record = bytes.TrimPrefix(record, []byte("\xef\xbb\xbf"))
	names, err := split(record, r.comma)
	if err != nil {
		return fault.Input("%s: line %d: header: %v", r.lines.name, r.first, err)
	}
	r.head = string(record[:min(len(record), adviceBytes)])
	if !r.spec.CSV.HasHeader() {
		if err := r.again(record); err != nil {
			return err
		}
		names = r.spec.CSV.Columns(len(names))
	}
	r.width = len(names)
	for _, want := range r.spec.columns() {
		at := -1
		for i, n := range names {
			if strings.TrimSpace(n) != want {
				continue
			}
			if at >= 0 {
				return fault.Input("%s: line 1: column %q appears twice: rename one of them", r.lines.name, want)
			}
			at = i
		}
		if at < 0 {
			return r.noColumn(want, names)
		}
		r.columns = append(r.columns, at)
	}
	return nil
}

// again has the first record read once more, as a row.
func (r *csvReader) again(record []byte) error {
	line := append(bytes.Clone(record), '\n')
	rest := bytes.Clone(r.ahead[r.at:])
	r.hold.Shrink(int64(cap(r.ahead)))
	r.ahead, r.at = nil, 0
	r.lines.number = r.first - 1
	if err := r.keep(append(line, rest...)); err != nil {
		return err
	}
	r.at = 0
	return nil
}

// Bounds of what is looked at to advise a dialect: bytes of a record, and records.
const (
	adviceBytes   = 4 << 10
	adviceRecords = 10
)

// noColumn returns the error for a column that the header does not name. What can be told from the head of the file is part of it.
func (r *csvReader) noColumn(want string, names []string) error {
	records := []string{r.head}
	for len(records) <= adviceRecords {
		record, problem, err := r.record()
		if err != nil {
			break
		}
		if problem == "" && len(record) > 0 && len(record) <= adviceBytes {
			records = append(records, string(record))
		}
	}
	if advice := r.advise(records); advice != "" {
		return fault.Input("%s: line 1: no column %q: %s", r.lines.name, want, advice)
	}
	what := "the file has"
	if !r.spec.CSV.HasHeader() {
		what = "its columns are called"
	}
	return fault.Input("%s: line 1: no column %q; %s %s: name the columns in the swarm spec (timestamp, features)", r.lines.name, want, what, quoteAll(names))
}

// advise says which dialect records need, the header first; empty where it is not known.
func (r *csvReader) advise(records []string) string {
	d := r.spec.CSV
	if d == nil {
		d = &dialect.CSV{}
	}
	clock := r.clock
	return d.Advise(records, r.spec.columns(), func(text string) bool { _, err := clock.Parse(text); return err == nil }).String()
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
		cure := ""
		if problem == "" {
			var out row
			if out, problem = r.parse(record); problem == "" {
				r.valid = true
				return out, nil, nil
			}
			cure = r.cure(record)
			if r.second >= 0 {
				// The quote was a stray one that found a partner lines away: what lies between are rows of their own.
				problem = r.unread()
			}
		}
		return row{}, &reject{Series: r.lines.name, Row: r.number, Line: r.first, Reason: problem, Cure: cure}, nil
	}
}

// cure says what to set so that a record is read, as long as no other has been.
func (r *csvReader) cure(record []byte) string {
	if r.valid || len(record) > adviceBytes || len(r.head) >= adviceBytes {
		return ""
	}
	records := []string{string(record)}
	if r.spec.CSV.HasHeader() {
		records = []string{r.head, string(record)}
	}
	return r.advise(records)
}

func (r *csvReader) close() error { return r.src.Close() }

// parse turns a record into a row, or says what is wrong with it.
func (r *csvReader) parse(record []byte) (row, string) {
	if !utf8.Valid(record) {
		return row{}, "it is not valid UTF-8"
	}
	fields, err := split(record, r.comma)
	if err != nil {
		return row{}, err.Error()
	}
	if len(fields) != r.width {
		of := "the header"
		if !r.spec.CSV.HasHeader() {
			of = "the first row"
			if len(r.spec.CSV.Names) > 0 {
				of = "csv.names"
			}
		}
		return row{}, fmt.Sprintf("it has %d fields, %s has %d", len(fields), of, r.width)
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
		if r.spec.CSV.DecimalComma() {
			number, problem := r.spec.CSV.Number(text)
			if problem != "" {
				return row{}, fmt.Sprintf("column %q: %s %s", r.spec.Features[i], fault.Quote(text), problem)
			}
			text = number
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

// split cuts a record into fields. Most records have no quote and are cut at the delimiters; the rest is RFC 4180's business.
func split(record []byte, comma rune) ([]string, error) {
	text := string(record)
	if !strings.Contains(text, `"`) {
		return strings.Split(text, string(comma)), nil
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

// record returns the next record without its line end. A record that cannot be one gives the reason instead, and reading
// goes on with the line after its first.
func (r *csvReader) record() (record []byte, problem string, err error) {
	if r.at == len(r.ahead) {
		r.hold.Shrink(int64(cap(r.ahead)))
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
		if err := r.hold.Grow(int64(cap(grown) - cap(r.ahead))); err != nil {
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
