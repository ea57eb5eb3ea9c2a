// Package rowstest reads rows in the tests of other packages.
package rowstest

import (
	"errors"
	"io"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// OneFeature are the columns of a source with a timestamp and one feature, value.
var OneFeature = rows.ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}}

// All reads a source to its end and closes it. The numbers of rows and rejects must follow one
// another.
func All(t testing.TB, r rows.Reader) (valid []rows.Row, rejects []rows.Reject, err error) {
	t.Helper()
	defer func() {
		if cerr := r.Close(); cerr != nil {
			t.Errorf("close the reader: %v, want no error", cerr)
		}
	}()
	for n := uint64(1); ; n++ {
		row, rej, err := r.Next()
		if errors.Is(err, io.EOF) {
			return valid, rejects, nil
		}
		if err != nil {
			return valid, rejects, err
		}
		number := row.Number
		if rej != nil {
			number = rej.Row
			rejects = append(rejects, *rej)
		} else {
			valid = append(valid, row)
		}
		if number != n {
			t.Fatalf("row %d has number %d", n, number)
		}
	}
}

// Parse reads data of a format.
func Parse(
	t testing.TB, f rows.Format, data []byte, spec rows.ColumnSpec,
) (valid []rows.Row, rejects []rows.Reject, err error) {
	t.Helper()
	r, err := rows.Open("s", fixture.TempFile(t, data), f, spec, fixture.Plenty, nil)
	if err != nil {
		return nil, nil, err
	}
	return All(t, r)
}

// TwoFeatures are the columns of the tables of tabletest.Files.
var TwoFeatures = rows.ColumnSpec{Timestamp: "at", Features: []string{"a", "b"}}
