package cpuagents

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// maxRecord bounds one CSV record in bytes: a line longer than this, or a quoted field that has not closed by then, is
// rejected as a row of its own and reading goes on with the next line.
const maxRecord = 1 << 20

// maxTimestamp bounds the text of a timestamp in bytes. It travels with the row, so it counts in the size of a batch.
const maxTimestamp = 64

// CSVSpec says how to read a CSV file.
type CSVSpec struct {
	// Timestamp is the column that says when; Features are the columns with numbers, at least one.
	Timestamp string   `json:"timestamp"`
	Features  []string `json:"features"`
}

// row is one valid row of a series.
type row struct {
	number    uint64 // in its file, from 1, the header not counted
	timestamp string // as written
	time      int64  // unix nanoseconds
	value     float64
	features  []float32
}

// reject is a row that was skipped, and why.
type reject struct {
	Series string `json:"series"`
	Row    uint64 `json:"row"`
	Line   uint64 `json:"line"`
	Reason string `json:"reason"`
}

// csvReader reads the rows of one file. It holds at most one record and its read-ahead in memory.
type csvReader struct {
	name    string
	spec    CSVSpec
	src     io.Closer
	buf     *bufio.Reader
	pending [][]byte // lines read ahead while a quote was open, and given back
	line    uint64   // of the last physical line taken
	first   uint64   // line of the last record
	ahead   [][]byte // lines of the last record behind its first
	number  uint64   // of the last row
	columns []int    // position of the timestamp, then of the features
	width   int      // columns of the header
	last    int64    // time of the last valid row
	any     bool
	clock   Clock
}

// newCSVReader reads the header. The reader owns src from here on, also when an error is returned.
func newCSVReader(name string, src io.ReadCloser, spec CSVSpec) (*csvReader, error) {
	r := &csvReader{name: name, spec: spec, src: src, buf: bufio.NewReaderSize(src, 256<<10)}
	if err := r.header(); err != nil {
		_ = src.Close()
		return nil, err
	}
	return r, nil
}

func (r *csvReader) header() error {
	record, problem, err := r.record()
	if errors.Is(err, io.EOF) {
		return inputError("%s: the file is empty: it must begin with a header such as %s,%s", r.name, r.spec.Timestamp, strings.Join(r.spec.Features, ","))
	}
	if err != nil {
		return err
	}
	if problem != "" {
		return inputError("%s: line %d: header: %s", r.name, r.line, problem)
	}
	names, err := split(bytes.TrimPrefix(record, []byte("\xef\xbb\xbf")))
	if err != nil {
		return inputError("%s: line 1: header: %v", r.name, err)
	}
	r.width = len(names)
	for _, want := range append([]string{r.spec.Timestamp}, r.spec.Features...) {
		at := -1
		for i, n := range names {
			if strings.TrimSpace(n) != want {
				continue
			}
			if at >= 0 {
				return inputError("%s: line 1: column %q appears twice: rename one of them", r.name, want)
			}
			at = i
		}
		if at < 0 {
			return inputError("%s: line 1: no column %q; the file has %s: name the columns in the swarm spec (timestamp, features)", r.name, want, quoteAll(names))
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
			if len(r.ahead) > 0 {
				// The quote was a stray one that found a partner lines away: what lies between are rows of their own.
				problem = r.unread()
			}
		}
		return row{}, &reject{Series: r.name, Row: r.number, Line: r.first, Reason: problem}, nil
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
	out := row{number: r.number, timestamp: strings.TrimSpace(fields[r.columns[0]]), features: make([]float32, len(r.columns)-1)}
	if len(out.timestamp) > maxTimestamp {
		return row{}, fmt.Sprintf("its timestamp is longer than %d bytes", maxTimestamp)
	}
	if out.time, err = r.clock.Parse(out.timestamp); err != nil {
		return row{}, err.Error()
	}
	for i, c := range r.columns[1:] {
		text := strings.TrimSpace(fields[c])
		v, err := strconv.ParseFloat(text, 64)
		switch {
		case text == "":
			return row{}, fmt.Sprintf("column %q is empty", r.spec.Features[i])
		case errors.Is(err, strconv.ErrRange) || math.IsInf(v, 0) || math.Abs(v) > math.MaxFloat32:
			return row{}, fmt.Sprintf("column %q: %s is infinite or beyond the range of a 32-bit float", r.spec.Features[i], shorten(text))
		case err != nil:
			return row{}, fmt.Sprintf("column %q: %s is not a number", r.spec.Features[i], shorten(text))
		case math.IsNaN(v):
			return row{}, fmt.Sprintf("column %q is NaN", r.spec.Features[i])
		}
		if i == 0 {
			out.value = v
		}
		out.features[i] = float32(v)
	}
	if r.any && out.time < r.last {
		return row{}, fmt.Sprintf("its timestamp %s goes back behind the row before it: sort the file by time", shorten(out.timestamp))
	}
	r.any, r.last = true, out.time
	return out, ""
}

func shorten(s string) string {
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return strconv.QuoteToGraphic(s)
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
	line, long, err := r.physical()
	if err != nil {
		return nil, "", err
	}
	r.first, r.ahead = r.line, nil
	if long {
		return nil, fmt.Sprintf("the line is longer than %d bytes", maxRecord), nil
	}
	if bytes.Count(line, []byte{'"'})%2 == 0 {
		return trimEnd(line), "", nil
	}
	// A quote is open at the end of the line: the record goes on, if the quote ever closes.
	all := append([]byte{}, line...)
	for len(all) <= maxRecord {
		more, long, err := r.physical()
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, "", err
		}
		if long {
			r.ahead = append(r.ahead, nil) // stands for a line that is too long
		}
		if err != nil || long {
			break
		}
		r.ahead = append(r.ahead, append([]byte{}, more...))
		all = append(all, more...)
		if bytes.Count(more, []byte{'"'})%2 == 1 {
			return trimEnd(all), "", nil
		}
	}
	return nil, r.unread(), nil
}

// unread gives back the lines of the last record but its first, and says what is wrong with that one.
func (r *csvReader) unread() (problem string) {
	r.pending = append(r.ahead, r.pending...)
	r.line, r.ahead = r.first, nil
	return "a quote that opens in it never closes"
}

func trimEnd(line []byte) []byte {
	return bytes.TrimSuffix(bytes.TrimSuffix(line, []byte{'\n'}), []byte{'\r'})
}

// physical returns the next line with its line end, valid until the next call. Of a line over maxRecord it reads
// everything and keeps nothing.
func (r *csvReader) physical() (line []byte, long bool, err error) {
	if len(r.pending) > 0 {
		line, r.pending = r.pending[0], r.pending[1:]
		r.line++
		return line, line == nil, nil
	}
	line, err = r.buf.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		whole := append([]byte{}, line...)
		for errors.Is(err, bufio.ErrBufferFull) {
			if line, err = r.buf.ReadSlice('\n'); len(whole) <= maxRecord {
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
			err = ioError("read", r.name, err)
		}
		return nil, false, err
	}
	r.line++
	return line, long, nil
}

// Clock reads timestamps. The zero value is ready; one goroutine uses it. Files stick to one form, so the last form that fitted is tried first.
type Clock struct{ form int }

var forms = []string{
	"2006-01-02 15:04:05", // with or without a fraction, as Go accepts one everywhere
	time.RFC3339,
	"2006-01-02T15:04:05",
	"2006-01-02 15:04:05Z07:00",
	"2006-01-02 15:04",
	"2006-01-02",
	"2006/01/02 15:04:05",
	"01/02/2006 15:04:05",
}

// Parse returns unix nanoseconds. A form without a zone is taken as UTC. A bare number is a unix time in seconds, or by its
// size in milliseconds, microseconds or nanoseconds.
func (c *Clock) Parse(text string) (int64, error) {
	for i := range forms {
		at := (c.form + i) % len(forms)
		t, err := time.Parse(forms[at], text)
		if err != nil {
			continue
		}
		c.form = at
		if y := t.Year(); y < 1678 || y > 2261 {
			return 0, fmt.Errorf("its timestamp %s is outside the years 1678 to 2261", shorten(text))
		}
		return t.UnixNano(), nil
	}
	if v, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(v) {
		// 1e11 seconds are the year 5138, 1e11 milliseconds are 1973: between two units there is no doubt.
		for _, scale := range []float64{1e9, 1e6, 1e3, 1} {
			if math.Abs(v) < 1e11*1e9/scale && math.Abs(v)*scale < math.MaxInt64 {
				if n, err := strconv.ParseInt(text, 10, 64); err == nil {
					return n * int64(scale), nil
				}
				return int64(v * scale), nil
			}
		}
	}
	return 0, fmt.Errorf("its timestamp %s is not a time: use 2006-01-02 15:04:05, RFC 3339, or unix seconds", shorten(text))
}
