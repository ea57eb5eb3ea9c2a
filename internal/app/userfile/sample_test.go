package userfile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// repeated returns lines made from a row's number.
func repeated(header string, n int, row func(i int) string) string {
	var b strings.Builder
	b.WriteString(header)
	for i := range n {
		b.WriteString(row(i) + "\n")
	}
	return b.String()
}

// TestPropose: the columns, the key and the dialect of samples in text formats are found.
func TestPropose(t *testing.T) {
	machines := repeated("Zeit;Maschine;Druck;Bemerkung\n", 200, func(i int) string {
		return fmt.Sprintf("%02d.03.2026 %02d:00:00;m-%d;%d,5;%s", 1+i/24, i%24, i%9, i, []string{"ok", "gut"}[i%2])
	})
	accounts := repeated("", 1800, func(i int) string {
		return fmt.Sprintf(
			`{"paid_at":%d,"account":"a%d","amount":%d.25,"is_anomaly":0,"nested":{"a":1}}`,
			1767225600+i,
			i%150,
			i,
		)
	})
	for _, c := range []struct {
		name, file, text   string
		choice             SpecChoice
		timestamp          string
		features, key      []string
		rows, rejected     int
		entities, perGroup int
		delimiter, decimal string
		form               string
	}{
		{
			name: "default", file: "cpu.csv", text: "timestamp,value\n2026-01-01 00:00:00,1\n2026-01-01 00:00:01,2\n",
			timestamp: "timestamp", features: []string{"value"}, rows: 2, perGroup: 256,
		},
		{
			name: "German", file: "werk 1.csv", text: machines, timestamp: "Zeit", features: []string{"Druck"},
			key: []string{"Maschine"}, rows: 200, entities: 9, perGroup: 256, delimiter: ";", decimal: ",",
			form: "02.01.2006 15:04:05",
		},
		{
			name: "chosen", file: "werk.csv", text: machines, choice: SpecChoice{NoKey: true, Name: "other"},
			timestamp: "Zeit", features: []string{"Druck"}, rows: 200, perGroup: 256, delimiter: ";", decimal: ",",
			form: "02.01.2006 15:04:05",
		},
		{
			name: "NDJSON", file: "pay.ndjson", text: accounts, timestamp: "paid_at", features: []string{"amount"},
			key: []string{"account"}, rows: 1800, entities: 150, perGroup: 64,
		},
		{
			name: "no header", file: "x.csv", text: repeated("", 50, func(i int) string {
				return fmt.Sprintf("2026-01-01 00:00:%02d,%d", i, i)
			}), timestamp: "1", features: []string{"2"}, rows: 50, perGroup: 256,
		},
		{
			name: "a byte order mark", file: "m.csv", text: "\ufefftime,value\r2026-03-02 05:00:00 AM,1\r",
			timestamp: "time", features: []string{"value"}, rows: 1, perGroup: 256, form: "2006-01-02 03:04:05 PM",
		},
		{
			name: "NDJSON with a byte order mark", file: "m.ndjson",
			text:      "\ufeff{\"time\":\"2026-03-02 05:00:00+00\",\"v\":1}\n",
			timestamp: "time", features: []string{"v"}, rows: 1, perGroup: 256,
		},
		{
			name: "days of a spreadsheet", file: "d.csv", text: "time,value\n46083.00347,1\n46083.00694,2\n46084,3\n",
			timestamp: "time", features: []string{"value"}, rows: 3, perGroup: 256, form: "excel",
		},
		{
			name: "dates without separators", file: "d.csv", text: "date,value\n20260302,1\n20260303,2\n",
			timestamp: "date", features: []string{"value"}, rows: 2, perGroup: 256, form: "20060102",
		},
		{
			name: "week dates", file: "d.csv", text: "week,value\n2026-W10,1\n2026-W11,2\n",
			timestamp: "week", features: []string{"value"}, rows: 2, perGroup: 256, form: "iso_week",
		},
		{
			name: "a spreadsheet of the US", file: "d.csv", text: "at,value\n3/2/2026 7:00,1\n3/14/2026 7:05,2\n",
			timestamp: "at", features: []string{"value"}, rows: 2, perGroup: 256, form: "1/2/2006 15:04",
		},
		{
			name: "tabs and a bad row", file: "x.tsv.csv", text: repeated("ts\thost\tload\n", 60, func(i int) string {
				if i == 30 {
					return "2026-01-01T00:00:30Z\th1\tbroken"
				}
				return fmt.Sprintf("2026-01-01T00:00:%02dZ\th%d\t%d.5", i, i%3, i)
			}), timestamp: "ts", features: []string{"load"}, key: []string{"host"}, rows: 59, rejected: 1, entities: 3,
			perGroup: 256, delimiter: "tab",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := ProposeSpec(t.Context(), file, c.choice)
			if err != nil {
				t.Fatal(err)
			}
			s := p.Spec
			if s.Timestamp != c.timestamp || !slices.Equal(s.Features, c.features) || !slices.Equal(s.Key, c.key) {
				t.Errorf("proposed timestamp %q, features %q, key %q\n%s", s.Timestamp, s.Features, s.Key, p.Text)
			}
			if p.Rows != c.rows || p.Rejected != c.rejected || p.Entities != c.entities ||
				s.AgentsPerGroup != c.perGroup {
				t.Errorf("%d rows, %d rejected, %d entities, %d agents a group", p.Rows, p.Rejected, p.Entities,
					s.AgentsPerGroup)
			}
			if s.CSV.Delimiter != c.delimiter || s.CSV.Decimal != c.decimal ||
				strings.Join(s.CSV.Time, "|") != c.form {
				t.Errorf("the dialect is %+v", s.CSV)
			}
			if c.choice.Name != "" && s.Name != c.choice.Name || (p.Rejected > 0) != (p.Reason != "") {
				t.Errorf("name %q, first reject %q", s.Name, p.Reason)
			}
		})
	}
}

// TestProposeKey: a column is the key if its values have ten rows on average, and it is no measured
// number. A measured number is a feature, whatever its name.
func TestProposeKey(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	at := func(s int) string { return time.Unix(int64(1767225600+s), 0).UTC().Format("2006-01-02 15:04:05") }
	for name, c := range map[string]struct {
		text          string
		features, key []string
		note          string
	}{
		"idle time": {
			repeated("time,us,sy,id\n", 45, func(i int) string {
				return fmt.Sprintf("%s,%d,%d,%d", at(i), 50+r.IntN(9), 30+r.IntN(9), r.IntN(12)*r.IntN(2))
			}), []string{"us", "sy", "id"}, nil, `"id" is no key`,
		},
		"idle time, long": {
			repeated("time,us,id\n", 900, func(i int) string { return fmt.Sprintf("%s,%d,%d", at(i), i%9, r.IntN(4)) }),
			[]string{"us", "id"},
			nil, `"id" is no key: it is a number that changes as a measured one does`,
		},
		"idle time of hosts": {
			repeated("time,host,id\n", 900, func(i int) string {
				return fmt.Sprintf("%s,h%d,%d", at(i/9), i%9, r.IntN(4))
			}), []string{"id"}, []string{"host"}, `"id" could be the key or a part of it too`,
		},
		"fractions": {
			repeated("time,id,v\n", 100, func(i int) string { return fmt.Sprintf("%s,%d.5,%d", at(i), i%3, i) }),
			[]string{"id", "v"},
			nil, "",
		},
		"entities at the same times": {
			repeated("time,sensor,v\n", 200, func(i int) string { return fmt.Sprintf("%s,%d,%d", at(i/5), 40+i%5, i) }),
			[]string{"v"},
			[]string{"sensor"},
			"",
		},
		"entities in turns": {
			repeated("time,node,v\n", 200, func(i int) string { return fmt.Sprintf("%s,%d,%d", at(i), i%5, i) }),
			[]string{"v"},
			[]string{"node"},
			"",
		},
		"one entity after the other": {
			repeated("time,meter,v\n", 200, func(i int) string { return fmt.Sprintf("%s,%d,%d", at(i%50), i/50, i) }),
			[]string{"v"},
			[]string{"meter"},
			"",
		},
		"entities in any order": {
			repeated("time,device_id,v\n", 200, func(i int) string {
				return fmt.Sprintf("%s,%d,%d", at(i), r.IntN(5), i)
			}), []string{"v"}, []string{"device_id"}, "",
		},
		"padded numbers": {
			repeated("time,machine,v\n", 200, func(i int) string {
				return fmt.Sprintf("%s,%03d,%d", at(i), r.IntN(5), i)
			}),
			[]string{"v"},
			[]string{"machine"},
			"",
		},
		"numbers of rows": {
			repeated("time,id,v\n", 200, func(i int) string { return fmt.Sprintf("%s,%d,%d", at(i), i, i) }),
			[]string{"v"},
			nil, "",
		},
		"too few rows": {
			repeated("time,device,v\n", 100, func(i int) string { return fmt.Sprintf("%s,d%d,%d", at(i), i%11, i) }),
			[]string{"v"},
			nil, `"device" is no key: its 11 values have 9.1 rows on average, and an entity needs 10`,
		},
		"the next one": {
			repeated("time,device,site,v\n", 100, func(i int) string {
				return fmt.Sprintf("%s,d%d,s%d,%d", at(i), i%11, i%2, i)
			}), []string{"v"}, []string{"site"}, `"device" is no key`,
		},
	} {
		file := filepath.Join(t.TempDir(), "a.csv")
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := ProposeSpec(t.Context(), file, SpecChoice{})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !slices.Equal(p.Spec.Features, c.features) || !slices.Equal(p.Spec.Key, c.key) ||
			!strings.Contains(strings.Join(p.Notes, "\n"), c.note) || (c.note == "") != (len(p.Notes) == 0) {
			t.Errorf("%s: features %q, key %q, notes %q", name, p.Spec.Features, p.Spec.Key, p.Notes)
		}
	}
}

// TestProposeBad: a sample that gives no specification is an error of the input with a cure.
func TestProposeBad(t *testing.T) {
	for name, c := range map[string]struct {
		file, text, want string
		choice           SpecChoice
	}{
		"empty": {file: "e.csv", want: "no rows"},
		"no time": {
			file: "n.csv", text: "a,b\nx,y\n",
			want: `name one with --timestamp; the columns are "a", "b"`,
		},
		"no number": {file: "n.csv", text: "time,b\n2026-01-01,y\n", want: "name one with --features"},
		"no column": {
			file: "n.csv", text: "time,b\n2026-01-01,1\n",
			want: `no column "c"`, choice: SpecChoice{Key: []string{"c"}},
		},
		"no JSON":      {file: "n.ndjson", text: "[1]\n", want: "one JSON object a line is expected"},
		"no Parquet":   {file: "n.parquet", text: "no file", want: "no Parquet file"},
		"no Arrow":     {file: "n.arrow", text: "no file at all, but text", want: "Arrow IPC file"},
		"no zstd":      {file: "n.csv.zst", text: "no zstd", want: "n.csv.zst"},
		"binary":       {file: "n.csv", text: "\x00\x01\x02\n\xff\xfe\n", want: "line 1: it is not text"},
		"packed twice": {file: "n.parquet.gz", text: "x", want: "unpack it first"},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), c.file)
			if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ProposeSpec(t.Context(), file, c.choice)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
			if code := jobs.AsError(err).Code; code != jobs.CodeInput && code != jobs.CodeInvalid {
				t.Errorf("the error %v is of class %s", err, code)
			}
		})
	}
	if _, err := ProposeSpec(t.Context(), filepath.Join(t.TempDir(), "none.csv"), SpecChoice{}); err == nil {
		t.Error("a file that does not exist is proposed for")
	}
	file := filepath.Join(t.TempDir(), "a.csv")
	if err := os.WriteFile(file, []byte("time,value\n2026-01-01,1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancelCause(t.Context())
	cause := errors.New("ended")
	end(cause)
	if _, err := ProposeSpec(ctx, file, SpecChoice{}); !errors.Is(err, cause) {
		t.Errorf("error %v, want the cause of the context", err)
	}
}

// TestProposeSchema: the schema of Parquet and Arrow files gives the columns.
func TestProposeSchema(t *testing.T) {
	fields := []arrow.Field{
		{Name: "read_at", Type: arrow.FixedWidthTypes.Timestamp_us},
		{Name: "device_id", Type: arrow.BinaryTypes.String},
		{Name: "temperature", Type: arrow.PrimitiveTypes.Float32},
	}
	schema := arrow.NewSchema(fields, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer b.Release()
	for i := range 2400 {
		b.Field(0).(*array.TimestampBuilder).Append(arrow.Timestamp(1767225600000000 + i))
		b.Field(1).(*array.StringBuilder).Append(fmt.Sprintf("d%d", i%200))
		b.Field(2).(*array.Float32Builder).Append(float32(i))
	}
	record := b.NewRecordBatch()
	defer record.Release()
	for _, name := range []string{"a.parquet", "a.arrow"} {
		file := filepath.Join(t.TempDir(), name)
		f, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		if name == "a.parquet" {
			w, err := pqarrow.NewFileWriter(schema, f, parquet.NewWriterProperties(), pqarrow.DefaultWriterProps())
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Write(record), w.Close()); err != nil {
				t.Fatal(err)
			}
		} else {
			w, err := ipc.NewFileWriter(f, ipc.WithSchema(schema))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(w.Write(record), w.Close(), f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		p, err := ProposeSpec(t.Context(), file, SpecChoice{})
		if err != nil {
			t.Fatal(err)
		}
		if s := p.Spec; s.Timestamp != "read_at" || !slices.Equal(s.Features, []string{"temperature"}) ||
			!slices.Equal(
				s.Key,
				[]string{"device_id"},
			) || p.Rows != 2400 || p.Entities != 200 || s.AgentsPerGroup != 64 {
			t.Errorf("%s: %d rows, %d entities\n%s", name, p.Rows, p.Entities, p.Text)
		}
	}
}

// TestText: a choice without a sample is a valid specification.
func TestText(t *testing.T) {
	for _, c := range []SpecChoice{
		{Name: "x"},
		{Name: "x", Timestamp: "no", Features: []string{"a b", "c"}, Key: []string{"x: y", "1"}},
	} {
		s, err := swarm.Parse("x", []byte(SpecText(c)))
		if err != nil {
			t.Errorf("%+v: %v\n%s", c, err, SpecText(c))
			continue
		}
		if len(c.Features) > 0 && (!slices.Equal(s.Features, c.Features) || !slices.Equal(s.Key, c.Key)) {
			t.Errorf("%+v became\n%s", c, SpecText(c))
		}
	}
}

// FuzzPropose: no sample makes a proposal panic, hang, or be refused by the parser.
func FuzzPropose(f *testing.F) {
	f.Add("time,value\n2026-01-01,1\n", false)
	f.Add("a;b\n01.02.2026 10:00;1,5\n", false)
	f.Add(`{"t":1767225600,"v":1}`+"\n", true)
	f.Add("\"a\nb\",c\n1,2\n", false)
	f.Fuzz(func(t *testing.T, text string, object bool) {
		name := "x.csv"
		if object {
			name = "x.ndjson"
		}
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := ProposeSpec(t.Context(), file, SpecChoice{})
		if err != nil && jobs.AsError(err).Code == jobs.CodeInternal {
			t.Errorf("%q: %v", text, err)
		}
	})
}
