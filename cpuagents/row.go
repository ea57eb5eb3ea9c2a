package cpuagents

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/exoswarm/exoswarm/cpuagents/fault"
	"github.com/exoswarm/exoswarm/internal/dialect"
)

// maxRecord bounds one record of a text format in bytes: a line longer than this, or a quoted field that has not closed by
// then, is rejected as a row of its own and reading goes on with the next line.
const maxRecord = 1 << 20

// maxTimestamp bounds the text of a timestamp in bytes. It travels with the row, so it counts in the size of a batch.
const maxTimestamp = 64

// ColumnSpec says which columns of a source are read. Names are matched exactly.
type ColumnSpec struct {
	// Timestamp is the column that says when; Features are the columns with numbers, at least one.
	Timestamp string   `json:"timestamp"`
	Features  []string `json:"features"`
	// AnyOrder passes rows that go back in time. Else they are rejected.
	AnyOrder bool `json:"any_order,omitempty"`
	// CSV is how CSV files are written; nil for RFC 4180 with a header. A source may have one of its own.
	CSV *dialect.CSV `json:"csv,omitempty"`
}

// columns are the names of all columns that are read, the timestamp first.
func (s ColumnSpec) columns() []string { return append([]string{s.Timestamp}, s.Features...) }

// rowReader reads the rows of one series in the order of its source. One goroutine uses it.
type rowReader interface {
	// next returns the next valid row, or a reject, or io.EOF. The row's features are the caller's.
	next() (row, *reject, error)
	close() error
}

// row is one valid row of a series.
type row struct {
	number    uint64 // in its source, from 1, a header not counted
	timestamp string // as written; of a column that holds times, RFC 3339 in UTC
	time      int64  // unix nanoseconds
	features  []float32
	values    []float64 // the features in full precision
}

// reject is a row, or a file, that was skipped, and why.
type reject struct {
	Series string `json:"series"`
	File   string `json:"file,omitempty"` // of a source that has files
	Row    uint64 `json:"row"`            // 0: the whole file
	Line   uint64 `json:"line,omitempty"` // of a source that has lines
	Reason string `json:"reason"`
	// Cure is the dialect that the file seems to have, while none of its rows is valid.
	Cure string `json:"cure,omitempty"`
}

// place says where the row is, for an error.
func (r *reject) place() string {
	place := fmt.Sprintf("row %d", r.Row)
	if r.Line > 0 {
		place = fmt.Sprintf("row %d (line %d)", r.Row, r.Line)
	}
	switch {
	case r.File == "":
		return place
	case r.Row == 0:
		return "file " + fault.Quote(r.File)
	}
	return place + " of file " + fault.Quote(r.File)
}

// order refuses rows that go back in time.
type order struct {
	last int64 // time of the last valid row
	any  bool
}

func (o *order) check(r *row) (problem string) {
	if o.any && r.time < o.last {
		return fmt.Sprintf("its timestamp %s goes back behind the row before it: sort the file by time", fault.Quote(r.timestamp))
	}
	o.any, o.last = true, r.time
	return ""
}

// parseFeature reads the text of a number, or says what is wrong with it.
func parseFeature(column, text string) (v float64, problem string) {
	v, err := strconv.ParseFloat(text, 64)
	switch {
	case errors.Is(err, strconv.ErrRange) || math.IsInf(v, 0) || math.Abs(v) > math.MaxFloat32:
		return 0, fmt.Sprintf("column %q: %s is infinite or beyond the range of a 32-bit float", column, fault.Quote(text))
	case err != nil:
		return 0, fmt.Sprintf("column %q: %s is not a number", column, fault.Quote(text))
	case math.IsNaN(v):
		return 0, fmt.Sprintf("column %q is NaN", column)
	}
	return v, ""
}

// checkFeature says what is wrong with a number that did not come as text.
func checkFeature(column string, v float64) (problem string) {
	if math.IsNaN(v) {
		return fmt.Sprintf("column %q is NaN", column)
	}
	if math.Abs(v) > math.MaxFloat32 {
		return fmt.Sprintf("column %q: %s is infinite or beyond the range of a 32-bit float", column, fault.Quote(strconv.FormatFloat(v, 'g', -1, 64)))
	}
	return ""
}
