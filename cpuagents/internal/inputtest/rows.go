package inputtest

import (
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
	return fixture.Drain(t, r, func(row rows.Row, rej *rows.Reject) uint64 {
		if rej != nil {
			return rej.Row
		}
		return row.Number
	})
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
