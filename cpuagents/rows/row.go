// Package rows decodes the documents of sources into rows, and encodes decisions: as CSV, NDJSON,
// Parquet and Arrow, plain or packed.
//
// Every decoder bounds what it allocates before it allocates it, takes the memory from an
// access.Hold, and returns damage of the data as an error of class jobs.CodeInput. A row that
// cannot be used is a Reject, and reading continues after it.
//
// The bytes of an output depend on the decisions and their order alone. Decisions arrive with the
// series mixed and leave series after series, so an Encoder writes each decision twice: first into
// a spool, then from there into the output.
package rows

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// MaxRecord bounds one record of a text format, in bytes. A longer line, or a line whose quoted
// field does not close within this length, is rejected as one row; reading continues with the next
// line.
const MaxRecord = 1 << 20

// maxTimestamp bounds the text of a timestamp in bytes. It travels with the row, so it counts in
// the size of a batch.
const maxTimestamp = 64

// ColumnSpec names the columns of a source that are read. Names must match exactly, including case.
type ColumnSpec struct {
	// Timestamp names the column with the time; empty: rows have no time, and AnyOrder is true.
	// Features name the columns with numbers, at least one.
	Timestamp string   `json:"timestamp"`
	Features  []string `json:"features"`
	// Blank is how many of the last features a row may leave out; they are NaN then.
	Blank int `json:"-"`
	// Settings has by column the setting of the specification that names it, for errors; a column
	// that is not there is named by timestamp, features or key.
	Settings map[string]string `json:"-"`
	// AnyOrder accepts rows that go back in time. Otherwise they are rejected.
	AnyOrder bool `json:"any_order,omitempty"`
	// CSV is the dialect of CSV files; nil for RFC 4180 with a header. A source may override it.
	CSV *dialect.CSV `json:"csv,omitempty"`
	// Local has what the rows of earlier documents have shown of local times; nil for a document that
	// is read alone. Readers of documents that follow one another share it.
	Local *LocalTimes `json:"-"`
	// Key names the columns whose values together name the entity of a row, up to MaxKeyColumns;
	// empty for a source that is one series.
	Key []string `json:"key,omitempty"`
	// MaxEntities is the largest number of entities of a job with a key; 0 means
	// DefaultMaxEntities.
	MaxEntities int `json:"max_entities,omitempty"`
}

// columns returns the names of all columns that are read: the timestamp if there is one, the
// features, the key.
func (s ColumnSpec) columns() (all []string) {
	if s.Timestamp != "" {
		all = append(all, s.Timestamp)
	}
	return append(append(all, s.Features...), s.Key...)
}

// first returns the place of the first feature among the columns: 1 behind a timestamp, otherwise
// 0.
func (s ColumnSpec) first() int {
	if s.Timestamp == "" {
		return 0
	}
	return 1
}

// blank reports whether a row may leave out feature i.
func (s ColumnSpec) blank(i int) bool { return i >= len(s.Features)-s.Blank }

// Reader reads the rows of one series in the order of its source. One goroutine uses it, and calls
// Close once. Errors name the source and have a class of package jobs. After an error other than a
// reject the reader is at its end.
type Reader interface {
	// Next returns the next valid row, or a reject, or an error: io.EOF after the last row. The
	// caller owns the slices of the row.
	Next() (Row, *Reject, error)
	Close() error
}

// Row is one valid row of a series.
type Row struct {
	Number    uint64 // in its source, from 1, a header not counted
	Timestamp string // as written; of a column that holds times, RFC 3339 in UTC
	Time      int64  // unix nanoseconds
	Features  []float32
	Values    []float64 // the features in full precision
	// Key names the entity of the row, see KeyValues; empty without key columns.
	Key string
}

// Reject is a row or a file that was skipped, with the reason. It is a line of the list of rejects.
type Reject struct {
	Series string `json:"series"`
	File   string `json:"file,omitempty"` // of a source that has files
	Row    uint64 `json:"row"`            // 0: the whole file
	Line   uint64 `json:"line,omitempty"` // of a source that has lines
	Reason string `json:"reason"`
	// Cure says what to do. It proposes the dialect that the file seems to have only while no row of
	// the file was valid.
	Cure string `json:"cure,omitempty"`
	// Cause is CauseKey, CauseEntities or CauseZone; empty for other causes.
	Cause string `json:"cause,omitempty"`
}

// Place returns the position of the row in its source, for an error.
func (r *Reject) Place() string {
	place := fmt.Sprintf("row %d", r.Row)
	if r.Line > 0 {
		place = fmt.Sprintf("row %d (line %d)", r.Row, r.Line)
	}
	switch {
	case r.File == "":
		return place
	case r.Row == 0:
		return "file " + access.Quote(r.File)
	}
	return place + " of file " + access.Quote(r.File)
}

// parseFeature parses the text of a number, or returns what is wrong with it. The parameter column
// is for the message. It has the range of a 32-bit float, with which the device computes.
func parseFeature(column, text string) (v float64, problem string) {
	v, err := dialect.Float(text, 64)
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0, fmt.Sprintf("column %q: %s is not a number", column, access.Quote(text))
	}
	if digits, _, _ := strings.Cut(strings.ToLower(text), "e"); v == 0 && strings.ContainsAny(digits, "123456789") {
		v = math.SmallestNonzeroFloat64
	}
	return v, checkFeature(column, v, text)
}

// Sizes of features that agents see: in 32 bits a smaller one has fewer digits.
const (
	largestFeature  = 1e36
	smallestFeature = 0x1p-126
)

// CheckFeature returns why agents cannot see a number; empty if they can.
func CheckFeature(column string, v float64) (problem string) {
	return checkFeature(column, v, strconv.FormatFloat(v, 'g', -1, 64))
}

func checkFeature(column string, v float64, text string) (problem string) {
	switch size := math.Abs(v); {
	case v != v:
		return fmt.Sprintf("column %q is NaN", column)
	case size > largestFeature:
		return fmt.Sprintf("column %q: %s is infinite or beyond 1e36: agents see 32-bit floats",
			column, access.Quote(text))
	case size < smallestFeature && size > 0:
		return fmt.Sprintf("column %q: %s is nearer to 0 than 1.2e-38: agents see 32-bit floats, so scale the column",
			column, access.Quote(text))
	}
	return ""
}
