package rows

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
)

var valueSpec = ColumnSpec{Timestamp: "timestamp", Features: []string{"value"}}

// readAll reads a text as a file and returns its valid values and its rejects as "row/line:
// reason".
func readAll(t testing.TB, text string, spec ColumnSpec) (values []float64, rejects []string) {
	t.Helper()
	r, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader(text)), spec, nil)
	if err != nil {
		t.Fatalf("newCSVReader: %v, want no error", err)
	}
	defer r.Close()
	for {
		row, rej, err := r.Next()
		if errors.Is(err, io.EOF) {
			return values, rejects
		}
		if err != nil {
			t.Fatalf("r.Next: %v, want no error", err)
		}
		if rej != nil {
			rejects = append(rejects, fmt.Sprintf("%d/%d: %s", rej.Row, rej.Line, rej.Reason))
			continue
		}
		values = append(values, row.Values[0])
	}
}

// TestMissingColumn: the cure of a column that is not there is the setting that names it, in every
// format.
func TestMissingColumn(t *testing.T) {
	spec := ColumnSpec{Timestamp: "time", Features: []string{"load"}, Key: []string{"site", "device"}}
	for header, want := range map[string]string{
		"load,site,device\n": `no column "time"; the file has "load", "site", "device": name the columns in the ` +
			`swarm spec (timestamp: COLUMN)`,
		"time,site,device\n": `(features: [COLUMN])`,
		"time,load,site\n": `no column "device"; the file has "time", "load", "site": name the columns in the ` +
			`swarm spec (key: COLUMN)`,
	} {
		_, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader(header)), spec, nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("CSV with %q: %v, want %s", header, err, want)
		}
		_, err = spec.Find("a.parquet", strings.Split(strings.TrimSpace(header), ","))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("columns %q: %v, want %s", header, err, want)
		}
	}
}

func TestBadHeaders(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty": {"", "a.csv: the file is empty: it must begin with a header such as timestamp,value"},
		"missing": {
			"time,value\n1,2\n",
			`a.csv: line 1: no column "timestamp"; the file has "time", "value": name the columns in the swarm spec ` +
				`(timestamp: COLUMN)`,
		},
		"twice": {"timestamp,value,value\n", `a.csv: line 1: column "value" appears twice: rename one of them`},
		"quote": {"\"timestamp,value\n1,2\n", "a.csv: line 1: header: a quote that opens in it never closes"},
		"very long": {strings.Repeat("x", 10<<20) + "\n", "a.csv: line 1: header: the line is longer than 1048576 " +
			"bytes"},
		"binary": {
			"\x00\xff\xfe,\x80\n",
			"a.csv: line 1: it is not text in UTF-8 or UTF-16: save the file as UTF-8",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader(c.text)), valueSpec, nil)
			var e *jobs.Error
			if !errors.As(err, &e) || e.Code != jobs.CodeInput || e.Message != c.want {
				t.Fatalf("got  %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestBadRows(t *testing.T) {
	text := strings.Join([]string{
		"\xef\xbb\xbftimestamp,value,note",
		"2026-01-01 00:00:00,1,",
		"2026-01-01 00:01:00,abc,",
		"2026-01-01 00:02:00,NaN,",
		"2026-01-01 00:03:00,-Inf,",
		"2026-01-01 00:04:00,1e39,",
		"2026-01-01 00:05:00,,",
		"yesterday,5,",
		"2026-01-01 00:06:00,6",
		"",
		"2026-01-01 00:07:00,7,\xff\xfe",
		"2026-01-01 00:08:00,8,ok\r",
		"2026-01-01 00:07:59,9,back",
		"2026-01-01 00:08:00,10,equal times are fine",
		"2026-01-01 00:09:00,11," + strings.Repeat("x", 10<<20),
		`2026-01-01 00:10:00,12,"a ""quoted"" note, with a comma`,
		`and a second line"`,
		`2026-01-01 00:11:00,13,"a quote that never closes`,
		"2026-01-01 00:12:00,14,the row after it counts",
		"2026-01-01 00:13:00, 15 ,the last line has no end",
	}, "\n")
	values, rejects := readAll(t, text, valueSpec)
	if d := cmp.Diff([]float64{1, 8, 10, 12, 14, 15}, values); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
	want := []string{
		`2/3: column "value": "abc" is not a number`,
		`3/4: column "value" is NaN`,
		`4/5: column "value": "-Inf" is infinite or beyond 1e36: agents see 32-bit floats`,
		`5/6: column "value": "1e39" is infinite or beyond 1e36: agents see 32-bit floats`,
		`6/7: column "value" is empty`,
		`7/8: its timestamp "yesterday" is not a time: use 2006-01-02 15:04:05, RFC 3339, or unix seconds`,
		`8/9: it has 2 fields, the header has 3`,
		`9/11: it is not valid UTF-8`,
		`11/13: its timestamp "2026-01-01 00:07:59" goes back behind the row before it`,
		`13/15: the line is longer than 1048576 bytes`,
		`15/18: a quote that opens in it never closes`,
	}
	if d := cmp.Diff(want, rejects); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}

// TestStrayQuote: a stray quote that happens to pair with a later one does not swallow the rows
// between them.
func TestStrayQuote(t *testing.T) {
	values, rejects := readAll(t, "timestamp,value\n1,1\n2,\"2\n3,3\n4,4\n5,5\"\n6,6\n", valueSpec)
	if d := cmp.Diff([]float64{1, 3, 4, 6}, values); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
	want := []string{"2/3: a quote that opens in it never closes", "5/6: a quote that opens in it never closes"}
	if d := cmp.Diff(want, rejects); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}

func TestStrayQuoteBeforeLongLine(t *testing.T) {
	values, rejects := readAll(t, "timestamp,value\n1,\"1\n2,"+strings.Repeat("x", 2<<20)+"\n3,3\n", valueSpec)
	if d := cmp.Diff([]float64{3}, values); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
	want := []string{"1/2: a quote that opens in it never closes", "2/3: the line is longer than 1048576 bytes"}
	if d := cmp.Diff(want, rejects); d != "" {
		t.Errorf("difference (-want +got):\n%s", d)
	}
}

func TestSeveralFeatures(t *testing.T) {
	r, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader("b,t,a\n1.5,7,2.5\n")),
		ColumnSpec{Timestamp: "t", Features: []string{"a", "b"}}, nil)
	if err != nil {
		t.Fatalf("newCSVReader: %v, want no error", err)
	}
	row, _, err := r.Next()
	if err != nil || row.Values[0] != 2.5 || !cmp.Equal(row.Features, []float32{2.5, 1.5}) || row.Timestamp != "7" {
		t.Fatalf("the row is %+v, %v, want the features 2.5 and 1.5 at 7", row, err)
	}
}

func TestClock(t *testing.T) {
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for text, want := range map[string]int64{
		"2026-03-04 05:06:07":       at.UnixNano(),
		"2026-03-04 05:06:07.25":    at.UnixNano() + 250e6,
		"2026-03-04T05:06:07Z":      at.UnixNano(),
		"2026-03-04T07:06:07+02:00": at.UnixNano(),
		"2026-03-04T05:06:07.5":     at.UnixNano() + 500e6,
		"2026-03-04 05:06":          at.UnixNano() - 7e9,
		"2026-03-04":                at.UnixNano() - 7e9 - 6*60e9 - 5*3600e9,
		"1772600767":                1772600767e9,
		"1772600767.5":              1772600767.5e9,
		"1772600767123":             1772600767123e6,
		"1772600767123456":          1772600767123456e3,
		"1772600767123456789":       1772600767123456789,
		"0":                         0,
		"-5":                        -5e9,
	} {
		var c Clock
		if got, err := c.Parse(text); err != nil || got != want {
			t.Errorf("%s: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "NaN", "Inf", "1e300", "0001-01-01", "9999-12-31", "2026-13-01"} {
		var c Clock
		if got, err := c.Parse(text); err == nil {
			t.Errorf("%q is the time %d", text, got)
		}
	}
}

// TestRandomFiles writes files with known valid rows, with lines of every kind mixed in, and reads
// them back.
func TestRandomFiles(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		var b strings.Builder
		b.WriteString("timestamp,value,note\n")
		var want []float64
		bad := 0
		for i := range r.IntN(60) {
			v := r.NormFloat64() * 1e3
			text := strconv.FormatFloat(v, 'g', -1, 64)
			switch r.IntN(6) {
			case 0:
				fmt.Fprintf(&b, "%d,x%s,\n", i, text)
				bad++
				continue
			case 1:
				fmt.Fprintf(&b, "%d,\"%s\",\"two\nlines, %d\"\r\n", i, text, i)
			case 2:
				fmt.Fprintf(&b, "\n%d,%s,\"\"\n\n", i, text)
			default:
				fmt.Fprintf(&b, "%d,%s,%s\n", i, text, strings.Repeat("y", r.IntN(300)))
			}
			want = append(want, v)
		}
		values, rejects := readAll(t, b.String(), valueSpec)
		if !cmp.Equal(want, values) || len(rejects) != bad {
			t.Fatalf("seed %d: %s\n%d rejects of %d: %q", seed, cmp.Diff(want, values), len(rejects), bad, rejects)
		}
	}
}

// FuzzCSV: whatever is in a file, reading it ends, and every row is valid or rejected with its
// number.
func FuzzCSV(f *testing.F) {
	f.Add("timestamp,value\n1,2\n")
	f.Add("timestamp,value\n1,\"2\n3,4\n")
	f.Add("\"timestamp\",\"value\"\r\n2026-01-01,1e3\r\n\r\n")
	f.Add("timestamp,value\n\"\"\",2\n\xff,\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		r, err := newCSVReader("a.csv", io.NopCloser(strings.NewReader(text)), valueSpec, nil)
		if err != nil {
			return
		}
		defer r.Close()
		for n := uint64(1); ; n++ {
			row, rej, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("r.Next: %v, want no error", err)
			}
			number := row.Number
			if rej != nil {
				number = rej.Row
			}
			if number != n || n > uint64(len(text)) {
				t.Fatalf("row %d has number %d", n, number)
			}
		}
	})
}

func BenchmarkCSV(b *testing.B) {
	text := "timestamp,value\n" + strings.Repeat("2014-07-01 00:00:00,10844.25\n", 10000)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		readAll(b, text, valueSpec)
	}
}

// TestRepeatedTimestamps: rows with the timestamp of the row before have its time and its text,
// also where the text of the output is another one and between other timestamps.
func TestRepeatedTimestamps(t *testing.T) {
	text := "timestamp,value\n"
	for _, at := range []string{
		"01.02.2026 10:00", "01.02.2026 10:00", "01.02.2026 10:01", " 01.02.2026 10:01", "x", "01.02.2026 10:01",
	} {
		text += at + ",1\n"
	}
	r, err := OpenText("a", io.NopCloser(strings.NewReader(text)), "csv", ColumnSpec{
		Timestamp: "timestamp", Features: []string{"value"},
		CSV: &dialect.CSV{Time: dialect.Forms{"02.01.2006 15:04"}, Zone: "Europe/Berlin"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var got []string
	for {
		row, rejected, err := r.Next()
		if err != nil {
			break
		}
		if rejected != nil {
			got = append(got, "rejected")
			continue
		}
		if at := time.Unix(0, row.Time).UTC().Format(time.RFC3339); at != row.Timestamp {
			t.Errorf("row %d has the time %s and the text %s", row.Number, at, row.Timestamp)
		}
		got = append(got, row.Timestamp)
		row.Features[0], row.Values[0] = 7, 7 // they are the caller's
	}
	want := []string{
		"2026-02-01T09:00:00Z", "2026-02-01T09:00:00Z", "2026-02-01T09:01:00Z", "2026-02-01T09:01:00Z", "rejected",
		"2026-02-01T09:01:00Z",
	}
	if !slices.Equal(got, want) {
		t.Errorf("the rows are %v, want %v", got, want)
	}
}
