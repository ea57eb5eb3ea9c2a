package rows

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
)

func withDialect(d dialect.CSV) ColumnSpec {
	spec := valueSpec
	spec.CSV = &d
	return spec
}

func TestDialects(t *testing.T) {
	no := false
	for name, c := range map[string]struct {
		spec    ColumnSpec
		text    string
		values  []float64
		rejects []string
	}{
		"european": {
			withDialect(dialect.CSV{Delimiter: ";", Decimal: ",", Time: dialect.Forms{"02.01.2006 15:04"}}),
			"\xef\xbb\xbftimestamp;value\r\n31.01.2026 10:00;1,5\r\n31.01.2026 10:01;2.5\r\n2026-01-31 " +
				"10:02:00;3\r\n31.01.2026 10:03;\"-4,25\"\r\n",
			[]float64{1.5, -4.25},
			[]string{
				`2/3: column "value": "2.5" has a point, and csv.decimal is a comma`,
				`3/4: its timestamp "2026-01-31 10:02:00" does not have the form of csv.time, 02.01.2006 15:04`,
			},
		},
		"decimal commas in quotes": {
			withDialect(dialect.CSV{Decimal: ","}), "timestamp,value\n1,\"1,5\"\n2,3\n",
			[]float64{1.5, 3},
			nil,
		},
		"tabs": {withDialect(dialect.CSV{Delimiter: "tab"}), "timestamp\tvalue\n1\t1\n2\t\"2\"\n" +
			"3\t\"a\tb\"\n", []float64{1, 2}, []string{`3/4: column "value": "a\tb" is not a number`}},
		"names": {
			withDialect(dialect.CSV{Header: &no, Names: []string{"timestamp", "note", "value"}}),
			"\n1,\"two\nlines\",1\n2,x,2\n3,y\n",
			[]float64{1, 2},
			[]string{`3/5: it has 2 fields, csv.names has 3`},
		},
		"numbers": {
			ColumnSpec{Timestamp: "2", Features: []string{"1"}, CSV: &dialect.CSV{Header: &no}},
			"\xef\xbb\xbf7,1\n8,2",
			[]float64{7, 8},
			nil,
		},
		"milliseconds": {
			withDialect(dialect.CSV{Time: dialect.Forms{"unix_ms"}}), "timestamp,value\n1000,1\n2000,2\n",
			[]float64{1, 2},
			nil,
		},
		"two forms": {withDialect(dialect.CSV{Time: dialect.Forms{"%d.%m.%Y", "rfc3339"}}), "timestamp,value\n" +
			"01.02.2026,1\n2026-02-02T00:00:00Z,2\n", []float64{1, 2}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			values, rejects := readAll(t, c.text, c.spec)
			if d := cmp.Diff(c.values, values); d != "" {
				t.Errorf("difference (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.rejects, rejects); d != "" {
				t.Errorf("difference (-want +got):\n%s", d)
			}
		})
	}
}

// TestDialectTimestamps: where the dialect says how timestamps are, they come out in a form that
// needs no dialect.
func TestDialectTimestamps(t *testing.T) {
	for _, c := range []struct {
		of         dialect.CSV
		text, want string
	}{
		{dialect.CSV{}, "2026-07-01 12:00:00", "2026-07-01 12:00:00"},
		{dialect.CSV{Zone: "Europe/Berlin"}, "2026-07-01 12:00:00", "2026-07-01T10:00:00Z"},
		{dialect.CSV{Zone: "Europe/Berlin"}, "1782907200", "2026-07-01T12:00:00Z"},
		{
			dialect.CSV{Zone: "Europe/Berlin", Time: dialect.Forms{"02.01.2006 15:04:05"}},
			"01.07.2026 12:00:00.5",
			"2026-07-01T10:00:00.5Z",
		},
		{dialect.CSV{Time: dialect.Forms{"unix_ms"}}, "1500", "1970-01-01T00:00:01.5Z"},
	} {
		r, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader("timestamp,value\n"+c.text+",1\n")),
			withDialect(c.of), nil)
		if err != nil {
			t.Fatalf("newCSVReader: %v, want no error", err)
		}
		row, rejected, err := r.Next()
		if err != nil || rejected != nil || row.Timestamp != c.want {
			t.Errorf("%+v: %+v, %+v, %v; want %s", c.of, row, rejected, err, c.want)
			continue
		}
		if at, err := time.Parse(time.RFC3339, row.Timestamp); err == nil && at.UnixNano() != row.Time {
			t.Errorf("%+v: %s and %d", c.of, row.Timestamp, row.Time)
		}
	}
}

// TestDialectAdvice: a file of another dialect is refused with what to set, and read when that is
// set.
func TestDialectAdvice(t *testing.T) {
	_, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader("timestamp;value\n31.01.2026 10:00;1,5\n")),
		valueSpec, nil)
	want := `a.csv: line 1: no column "timestamp": the file is separated by ";", its numbers have decimal commas and ` +
		`its timestamps are like "31.01.2026 10:00": ` +
		`set csv.delimiter: ";" and csv.decimal: "," and csv.time: "02.01.2006 15:04"`
	var e *jobs.Error
	if !errors.As(err, &e) || e.Code != jobs.CodeInput || e.Message != want {
		t.Fatalf("got  %v\nwant %s", err, want)
	}
	r, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader("timestamp;value\n31.01.2026 10:00;1,5\n"+
		"2026-01-31 10:00:00;1\n31.01.2026 10:02;1\n")), withDialect(dialect.CSV{Delimiter: ";"}), nil)
	if err != nil {
		t.Fatalf("newCSVReader: %v, want no error", err)
	}
	for i, want := range []string{
		`its numbers have decimal commas and its timestamps are like "31.01.2026 10:00": ` +
			`set csv.decimal: "," and csv.time: "02.01.2006 15:04"`, "", "",
	} {
		row, rejected, err := r.Next()
		switch {
		case err != nil:
			t.Fatalf("row %d: %v, want no error", i+1, err)
		case i == 1 && rejected != nil: // once a row is valid the dialect is not what is wrong
			t.Errorf("row %d: %+v", row.Number, rejected)
		case i != 1 && (rejected == nil || rejected.Cure != want):
			t.Errorf("row %d: got  %+v\nwant %s", i+1, rejected, want)
		}
	}
}

// twins reads a text with encoding/csv and with the reader of sources. Where the former takes the
// whole text, both must have the same rows.
func twins(t *testing.T, text string, d dialect.CSV) {
	t.Helper()
	c := csv.NewReader(strings.NewReader(strings.TrimPrefix(text, "\xef\xbb\xbf")))
	c.Comma, c.FieldsPerRecord = d.Comma(), -1
	records, err := c.ReadAll()
	if err != nil || len(records) == 0 {
		return
	}
	spec := withDialect(d)
	spec.AnyOrder = true
	r, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader(text)), spec, nil)
	if err != nil {
		return
	}
	for i, record := range records[1:] {
		row, rejected, err := r.Next()
		if err != nil {
			t.Fatalf("row %d of %q: %v", i+1, text, err)
		}
		if rejected != nil {
			if rejected.Row != uint64(i+1) {
				t.Fatalf("row %d of %q is rejected as row %d", i+1, text, rejected.Row)
			}
			continue
		}
		value, problem := d.Number(strings.TrimSpace(record[r.columns[1]]))
		v, err := strconv.ParseFloat(value, 64)
		if problem != "" || err != nil || v != row.Values[0] || row.Number != uint64(i+1) || len(record) != r.width {
			t.Fatalf("row %d of %q: %+v; encoding/csv has %q", i+1, text, row, record)
		}
	}
	if _, rejected, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Fatalf("%q has more than %d rows: %+v, %v", text, len(records)-1, rejected, err)
	}
}

// TestTwins: random tables, written by encoding/csv, with what it quotes.
func TestTwins(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		d := dialect.CSV{
			Delimiter: []string{"", ";", "tab", "|", " "}[r.IntN(5)],
			Decimal:   []string{"", ","}[r.IntN(2)],
		}
		var b bytes.Buffer
		w := csv.NewWriter(&b)
		w.Comma, w.UseCRLF = d.Comma(), r.IntN(2) == 0
		rows := [][]string{{"timestamp", "note", "value"}}
		for i := range r.IntN(40) {
			number := strconv.FormatFloat(r.NormFloat64(), 'f', -1, 64)
			if d.DecimalComma() {
				number = strings.Replace(number, ".", ",", 1)
			}
			note := []string{"", "a", "two\nlines", `a "quote"`, "a,b;c|d\te", " ", `"`}[r.IntN(7)]
			rows = append(rows, []string{fmt.Sprint(i), note, number})
		}
		if err := w.WriteAll(rows); err != nil {
			t.Fatalf("w.WriteAll: %v, want no error", err)
		}
		twins(t, b.String(), d)
		spec := withDialect(d)
		if values, rejects := readAll(t, b.String(), spec); len(values) != len(rows)-1 {
			t.Fatalf("seed %d: %d rows of %d, %q", seed, len(values), len(rows)-1, rejects)
		}
	}
}

// FuzzDialect: whatever is in a file, and whatever the dialect, reading it ends, and rows equal the
// records of encoding/csv.
func FuzzDialect(f *testing.F) {
	f.Add("timestamp;value\n31.01.2026 10:00;1,5\n", ";", ",", "02.01.2006 15:04", true)
	f.Add("timestamp,value\n1,\"2\n3,4\n", ",", "", "", true)
	f.Add("1\t\"2\n\"\t3\n", "tab", ".", "unix_ms", false)
	f.Fuzz(func(t *testing.T, text, delimiter, decimal, form string, header bool) {
		d := dialect.CSV{Delimiter: delimiter, Decimal: decimal, Header: &header}
		if form != "" {
			d.Time = dialect.Forms{form}
		}
		if _, err := d.Validate(); err != nil || len(text) > 1<<16 {
			return
		}
		if header {
			twins(t, text, d)
		}
		spec := withDialect(d)
		if !header {
			spec.Timestamp, spec.Features = "1", []string{"2"}
		}
		r, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader(text)), spec, nil)
		if err != nil {
			return
		}
		for n := uint64(1); ; n++ {
			row, rejected, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("r.Next: %v, want no error", err)
			}
			if rejected != nil {
				row.Number = rejected.Row
			}
			if row.Number != n || n > uint64(len(text)) {
				t.Fatalf("row %d has number %d", n, row.Number)
			}
		}
	})
}
