package rows_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/internal/inputtest"
	"github.com/exoswarm/exoswarm/cpuagents/internal/tabletest"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// keySpec are columns with a key of the given columns.
func keySpec(key ...string) rows.ColumnSpec {
	return rows.ColumnSpec{Timestamp: "t", Features: []string{"v"}, Key: key}
}

// keysOf returns the keys of valid rows, with a slash between values, and the rejects with their
// causes.
func keysOf(t *testing.T, f rows.Format, data []byte, spec rows.ColumnSpec) (keys, rejects []string) {
	t.Helper()
	valid, bad, err := inputtest.Parse(t, f, data, spec)
	if err != nil {
		t.Fatalf("%s: %v, want no error", f, err)
	}
	for _, r := range valid {
		keys = append(keys, strings.Join(rows.KeyValues(r.Key), "/"))
	}
	for _, r := range bad {
		rejects = append(rejects, fmt.Sprintf("%d %s %s", r.Row, r.Cause, r.Reason))
	}
	return keys, rejects
}

// TestKeysOfText: which values are keys in CSV and NDJSON, and the sentence for each that is none.
// Rows may go back in time, since only the rows of one entity are in order.
func TestKeysOfText(t *testing.T) {
	long := strings.Repeat("x", 10<<10)
	for name, c := range map[string]struct {
		format        rows.Format
		spec          rows.ColumnSpec
		text          string
		keys, rejects []string
	}{
		"csv": {
			"csv", keySpec("id"),
			"t,v,id\n5,1, a b \n4,1,007\n3,1,\n2,1,\"é,\"\n1,x,c\n1,1," + long + "\n",
			[]string{"a b", "007", "é,"},
			[]string{
				`3 key key column "id" is empty`,
				`5  column "v": "x" is not a number`,
				`6 key key column "id": its value of 10240 bytes, beginning with "` + long[:40] +
					`...", makes a key of more than 1024 bytes`,
			},
		},
		"two columns": {
			"csv", keySpec("site", "id"),
			"id,t,v,site\n1,5,1,a\n2,4,1,a\n1,3,1,\n" + long[:600] + ",2,1," + long[:600] + "\n",
			[]string{"a/1", "a/2"},
			[]string{
				`3 key key column "site" is empty`,
				`4 key key column "id": its value of 600 bytes, beginning with "` + long[:40] +
					`...", makes a key of more than 1024 bytes`,
			},
		},
		"ndjson": {
			"ndjson", keySpec("id"),
			`{"t":9,"v":1,"id":"17"}` + "\n" + `{"t":8,"v":1,"id":17}` + "\n" + `{"t":7,"v":1,"id":-0}` + "\n" +
				`{"t":7,"v":1,"id":true}` + "\n" + `{"t":6,"v":1,"id":null}` + "\n" + `{"t":5,"v":1}` + "\n" +
				`{"t":4,"v":1,"id":1.5}` + "\n" + `{"t":3,"v":1,"id":1e3}` + "\n" + `{"t":3,"v":1,"id":[1]}` + "\n" +
				`{"t":2,"v":1,"id":""}` + "\n" + `{"t":1,"v":1,"id":"a\u0000b"}` + "\n" +
				`{"t":1,"v":1,"id":"\u00e9"}` + "\n",
			[]string{"17", "17", "0", "true", "é"},
			[]string{
				`5 key key column "id" is null`,
				`6 key it has no member "id", which is a key column`,
				`7 key key column "id": the number "1.5" is no integer`,
				`8 key key column "id": the number "1e3" is no integer`,
				`9 key key column "id" is a list, not a text, an integer or a boolean`,
				`10 key key column "id" is empty`,
				`11 key key column "id" has a NUL character`,
			},
		},
		"ten megabytes": {
			"ndjson", keySpec("id"),
			`{"t":9,"v":1,"id":"` + strings.Repeat("x", 10<<20) + `"}` + "\n" + `{"t":8,"v":1,"id":"a"}` + "\n",
			[]string{"a"},
			[]string{`1  the line is longer than 1048576 bytes`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			keys, rejects := keysOf(t, c.format, []byte(c.text), c.spec)
			if d := cmp.Diff(c.keys, keys); d != "" {
				t.Errorf("keys (-want +got):\n%s", d)
			}
			if d := cmp.Diff(c.rejects, rejects); d != "" {
				t.Errorf("rejects (-want +got):\n%s", d)
			}
		})
	}
}

// keyTable returns a table with key columns of each type that can be one, and of one that cannot.
func keyTable(t *testing.T) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "t", Type: arrow.PrimitiveTypes.Int64},
		{Name: "v", Type: arrow.PrimitiveTypes.Float64},
		{Name: "text", Type: arrow.BinaryTypes.String, Nullable: true},
		{Name: "int", Type: arrow.PrimitiveTypes.Int64, Nullable: true},
		{Name: "small", Type: arrow.PrimitiveTypes.Uint8},
		{Name: "flag", Type: arrow.FixedWidthTypes.Boolean},
		{Name: "real", Type: arrow.PrimitiveTypes.Float64},
	}, nil))
	defer b.Release()
	for i, text := range []string{"a", "", "ten", "b\x00", "c\xff", "z", "é"} {
		b.Field(0).(*array.Int64Builder).Append(int64(100 - i))
		b.Field(1).(*array.Float64Builder).Append(1)
		switch text {
		case "z":
			b.Field(2).AppendNull()
			b.Field(3).AppendNull()
		case "ten":
			text = strings.Repeat("ten", 4<<20)
			fallthrough
		default:
			b.Field(2).(*array.StringBuilder).Append(text)
			b.Field(3).(*array.Int64Builder).Append(int64(i) - 1<<60)
		}
		b.Field(4).(*array.Uint8Builder).Append(uint8(250 + i%3))
		b.Field(5).(*array.BooleanBuilder).Append(i%2 == 0)
		b.Field(6).(*array.Float64Builder).Append(1)
	}
	return b.NewRecordBatch()
}

// TestKeysOfColumns: the same for Arrow and Parquet. A column of another type is an error of the
// file.
func TestKeysOfColumns(t *testing.T) {
	rec := keyTable(t)
	defer rec.Release()
	data := map[rows.Format][]byte{"arrow": tabletest.Arrow(t, rec, true), "parquet": tabletest.Parquet(t, rec)}
	for f, bytes := range data {
		keys, rejects := keysOf(t, f, bytes, keySpec("text"))
		if d := cmp.Diff([]string{"a", "é"}, keys); d != "" {
			t.Errorf("%s: texts (-want +got):\n%s", f, d)
		}
		if d := cmp.Diff([]string{
			`2 key key column "text" is empty`,
			`3 key key column "text": its value of 12582912 bytes, beginning with "` +
				strings.Repeat("ten", 14)[:40] + `...", makes a key of more than 1024 bytes`,
			`4 key key column "text" has a NUL character`,
			`5 key key column "text" is not valid UTF-8`,
			`6 key key column "text" is null`,
		}, rejects); d != "" {
			t.Errorf("%s: rejects of texts (-want +got):\n%s", f, d)
		}
		keys, rejects = keysOf(t, f, bytes, keySpec("flag", "int", "small"))
		want := []string{
			"true/-1152921504606846976/250", "false/-1152921504606846975/251", "true/-1152921504606846974/252",
			"false/-1152921504606846973/250", "true/-1152921504606846972/251", "true/-1152921504606846970/250",
		}
		if d := cmp.Diff(want, keys); d != "" {
			t.Errorf("%s: others (-want +got):\n%s", f, d)
		}
		if d := cmp.Diff([]string{`6 key key column "int" is null`}, rejects); d != "" {
			t.Errorf("%s: rejects of others (-want +got):\n%s", f, d)
		}
		if _, _, err := inputtest.Parse(t, f, bytes, keySpec("real")); err == nil ||
			!strings.Contains(err.Error(), "not a text, an integer or a boolean: convert it") {
			t.Errorf("%s: a key of floats: %v", f, err)
		}
		if _, _, err := inputtest.Parse(t, f, bytes, keySpec("device")); err == nil ||
			!strings.Contains(err.Error(), `no column "device"`) {
			t.Errorf("%s: a key column that is missing: %v", f, err)
		}
	}
}

// TestEntityName: different keys have different names, and a key of one column is named by its
// value.
func TestEntityName(t *testing.T) {
	if got := rows.EntityName("a, b"); got != "a, b" {
		t.Errorf("one column: %s", got)
	}
	if got := rows.EntityName(rows.JoinKey([]string{"a, b", "c"})); got != `"a, b", c` {
		t.Errorf("two columns: %s", got)
	}
	value := rapid.StringMatching(`[ab ,"\\\x{1}]{1,4}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := []string{value.Draw(t, "a"), value.Draw(t, "b")}, []string{value.Draw(t, "c"), value.Draw(t, "d")}
		ka, kb := rows.JoinKey(a), rows.JoinKey(b)
		if (rows.EntityName(ka) == rows.EntityName(kb)) != (ka == kb) {
			t.Fatalf("%q and %q have the names %s and %s", a, b, rows.EntityName(ka), rows.EntityName(kb))
		}
	})
}

// FuzzKey: whatever a line of NDJSON has as a key, the row has a key within the limits or is
// rejected with a reason.
func FuzzKey(f *testing.F) {
	for _, key := range []string{
		`"a"`, `17`, `-0`, `1e9`, `null`, `true`, `{}`, `["a"]`, `"\ud800"`, `"\u0000"`,
		`""`,
	} {
		f.Add(`{"t":1,"v":1,"id":` + key + `,"n":` + key + `}`)
	}
	f.Fuzz(func(t *testing.T, line string) {
		valid, bad, err := inputtest.Parse(t, "ndjson", []byte(line), keySpec("id", "n"))
		if err != nil {
			return
		}
		for _, r := range valid {
			values := rows.KeyValues(r.Key)
			if len(r.Key) > rows.MaxKey || len(values) != 2 || values[0] == "" || values[1] == "" {
				t.Errorf("%q has the key %q", line, r.Key)
			}
		}
		for _, r := range bad {
			if r.Reason == "" || r.Cause != "" && r.Cause != rows.CauseKey {
				t.Errorf("%q: %+v", line, r)
			}
		}
	})
}
