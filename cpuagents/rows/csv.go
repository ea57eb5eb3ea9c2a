package rows

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// csvReader reads the rows of one file. It holds at most one record and its read-ahead in memory.
type csvReader struct {
	Records
	spec   ColumnSpec
	comma  rune
	head   string // the first adviceBytes of the header, to advise a dialect
	valid  bool   // a row was valid
	src    io.Closer
	number uint64 // of the last row
	// columns are the positions of the timestamp, of the features and of the key in a record, and
	// width is the number of columns of the header, which every record must have.
	columns []int // positions of the timestamp, of the features and of the key
	width   int   // columns of the header
	clock   Clock
	order   *Order
	key     keyBuilder
	fields  []string // of the last record
	// written is the last timestamp as it was in its record, with its times, and stamp is the text of
	// time. Rows that follow one another often have the same.
	written string
	times   [2]int64
	stamp   string // empty before the first row of the timestamp
	time    int64
	remedy  string // the cure of the present record, if its problem has a special one
	cause   string // likewise
	floats  floats
}

// newCSVReader reads the header. The reader owns src from here on, also when an error is returned.
func newCSVReader(name string, src io.ReadCloser, spec ColumnSpec, h *access.Hold) (*csvReader, error) {
	r := &csvReader{
		Records: Records{lines: NewLines(name, src), hold: h},
		spec:    spec,
		comma:   spec.CSV.Comma(),
		src:     src,
		order:   NewOrder(spec, "csv"),
		key:     keyBuilder{columns: spec.Key},
	}
	if r.spec.Local == nil {
		r.spec.Local = NewLocalTimes(spec)
	}
	var err error
	if r.clock, err = NewClock(spec.CSV); err == nil {
		r.clock.dialect = true
		err = r.header()
	}
	if err != nil {
		_ = src.Close()
		return nil, err
	}
	return r, nil
}

// header reads the first record and finds the wanted columns. In a dialect without a header the
// first record is a row, and is read again as such.
func (r *csvReader) header() error {
	record, problem, err := r.Record()
	for err == nil && problem == "" && len(record) == 0 && !r.spec.CSV.HasHeader() { // an empty line is no row
		record, problem, err = r.Record()
	}
	if errors.Is(err, io.EOF) {
		if !r.spec.CSV.HasHeader() {
			return access.InputError("%s: the file is empty", r.lines.name)
		}
		return access.InputError(
			"%s: the file is empty: it must begin with a header such as %s", r.lines.name,
			strings.Join(r.spec.columns(), ","),
		)
	}
	if err != nil {
		return err
	}
	if problem != "" {
		return access.InputError("%s: line %d: header: %s", r.lines.name, r.lines.Number, problem)
	}
	record = bytes.TrimPrefix(record, []byte("\xef\xbb\xbf"))
	names, err := SplitRecord(record, r.comma)
	if err != nil {
		return access.InputError("%s: line %d: header: %v", r.lines.name, r.first, err)
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
				return access.InputError("%s: line 1: column %q appears twice: rename one of them", r.lines.name, want)
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

// Bounds of the advice of a dialect: the bytes of a record, and the records that are examined.
const (
	adviceBytes   = 4 << 10
	adviceRecords = 10
)

// noColumn returns the error of a column that the header does not name. If the first records show
// another dialect, the error proposes it. The reader is at some later record then, and is not used
// any more.
func (r *csvReader) noColumn(want string, names []string) error {
	if slices.ContainsFunc(names, func(n string) bool { return !IsText(n) }) {
		return access.InputError("%s: line 1: %s", r.lines.name, NoText)
	}
	records := []string{r.head}
	for len(records) <= adviceRecords {
		record, problem, err := r.Record()
		if err != nil {
			break
		}
		// A long record tells no more about the dialect than a short one.
		if problem == "" && len(record) > 0 && len(record) <= adviceBytes {
			records = append(records, string(record))
		}
	}
	if advice := r.advise(records); advice != "" {
		return access.InputError("%s: line 1: no column %q: %s", r.lines.name, want, advice)
	}
	what := "the file has"
	if !r.spec.CSV.HasHeader() {
		what = "its columns are called"
	}
	return access.InputError(
		"%s: line 1: no column %q; %s %s: name the columns in the swarm spec (%s)", r.lines.name, want, what,
		quoteAll(names), r.spec.setting(want),
	)
}

// advise returns the settings of the dialect that the records need, the header first; empty if it
// finds none.
func (r *csvReader) advise(records []string) string {
	d := r.spec.CSV
	if d == nil {
		d = &dialect.CSV{}
	}
	// A copy, since a trial must not change the state of the reader's clock.
	clock := r.clock
	return d.Advise(records, r.spec.columns(), func(text string) bool {
		_, err := clock.Parse(text)
		if r.spec.first() == 0 { // the first column is a number, for which no form of times is advised
			_, err = dialect.Float(text, 64)
		}
		return err == nil
	}).String()
}

// quoteAll returns names for a message: quoted, the first 12 of them, each cut at 40 bytes.
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

// Next returns the next valid row, or a reject, or io.EOF. The row's features are the caller's.
func (r *csvReader) Next() (Row, *Reject, error) {
	for {
		record, problem, err := r.Record()
		if err != nil {
			return Row{}, nil, err
		}
		if problem == "" && len(record) == 0 {
			continue // an empty line is no row
		}
		r.number++
		cure := ""
		r.remedy, r.cause = "", ""
		r.key.begin()
		if problem == "" {
			var out Row
			if out, problem = r.parse(record); problem == "" {
				r.valid = true
				return out, nil, nil
			}
			if cure = r.remedy; cure == "" {
				cure = r.cure(record)
			}
			// second is set only if the record has several lines.
			if r.second >= 0 {
				// A stray quote paired with one some lines later. The lines between are rows of
				// their own.
				problem = r.unread()
			}
		}
		return Row{}, &Reject{
			Series: r.lines.name, Row: r.number, Line: r.first, Reason: problem, Cure: cure,
			Cause: cmp.Or(r.key.cause(), r.cause),
		}, nil
	}
}

// cure returns the settings with which a record would be valid. It is empty after the first valid
// row. Once a row was valid the dialect is right, and the row itself is wrong.
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

func (r *csvReader) Close() error { return r.src.Close() }

// parse turns a record into a row, or returns what is wrong with it. The checks are in this order:
// the text, the number of fields, the timestamp, the features, and the order of time.
func (r *csvReader) parse(record []byte) (Row, string) {
	if !utf8.Valid(record) {
		return Row{}, "it is not valid UTF-8"
	}
	fields, err := appendFields(r.fields, record, r.comma)
	if err != nil {
		return Row{}, err.Error()
	}
	r.fields = fields
	// The message names what gives the number of columns in this dialect.
	if len(fields) != r.width {
		of := "the header"
		if !r.spec.CSV.HasHeader() {
			of = "the first row"
			if len(r.spec.CSV.Names) > 0 {
				of = "csv.names"
			}
		}
		return Row{}, fmt.Sprintf("it has %d fields, %s has %d", len(fields), of, r.width)
	}
	out := Row{Number: r.number}
	first := r.spec.first()
	out.Features, out.Values = r.floats.take(len(r.spec.Features))
	if first > 0 {
		out.Timestamp = strings.TrimSpace(fields[r.columns[0]])
	}
	if first > 0 && (r.written == "" || out.Timestamp != r.written) {
		first, second, problem := r.clock.times(out.Timestamp)
		if problem != "" {
			return Row{}, problem
		}
		// The text of the record would keep the record, up to a megabyte.
		r.written, r.times, r.stamp = strings.Clone(out.Timestamp), [2]int64{first, second}, ""
	}
	for i, c := range r.columns[first+len(r.spec.Features):] {
		text := strings.TrimSpace(fields[c])
		if problem := r.key.add(i, text, len(text)); problem != "" {
			return Row{}, problem
		}
	}
	out.Key = r.key.key()
	for i, c := range r.columns[first : first+len(r.spec.Features)] {
		text := strings.TrimSpace(fields[c])
		if text == "" && r.spec.blank(i) {
			out.Values[i], out.Features[i] = math.NaN(), float32(math.NaN())
			continue
		}
		if text == "" {
			return Row{}, fmt.Sprintf("column %q is empty", r.spec.Features[i])
		}
		if r.spec.CSV.DecimalComma() {
			number, problem := r.spec.CSV.Number(text)
			if problem != "" {
				return Row{}, fmt.Sprintf("column %q: %s %s", r.spec.Features[i], access.Quote(text), problem)
			}
			text = number
		}
		v, problem := parseFeature(r.spec.Features[i], text)
		if problem != "" {
			return Row{}, problem
		}
		out.Values[i] = v
		out.Features[i] = float32(v)
	}
	if first == 0 {
		return out, ""
	}
	var ok bool
	if out.Time, ok = r.spec.Local.Choose(out.Key, r.times[0], r.times[1], out.Values); !ok {
		problem, cure := undecided(r.spec.CSV, r.written)
		r.remedy, r.cause = cure, CauseZone
		return Row{}, problem
	}
	if r.stamp == "" || r.time != out.Time {
		r.stamp, r.time = r.clock.Text(out.Time, r.written), out.Time
	}
	out.Timestamp = r.stamp
	if problem := r.order.admit(r.spec, &out, &r.remedy); problem != "" {
		return Row{}, problem
	}
	return out, ""
}
