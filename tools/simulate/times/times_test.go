package times

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func durations(t *rapid.T, most int) []int64 {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) int64 {
		return rapid.Int64Range(0, 1<<rapid.IntRange(1, 40).Draw(t, "size")).Draw(t, "ns")
	}), 1, most).Draw(t, "durations")
}

// TestHistogram: quantiles and mean match the sorted durations, to the width of a bucket.
func TestHistogram(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := durations(t, 200)
		var h Histogram
		sum := 0.0
		for _, ns := range all {
			h.Add(ns)
			sum += float64(ns)
		}
		slices.Sort(all)
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		at := max(0, int(math.Ceil(q*float64(len(all))))-1)
		want := float64(floor(all[at]))
		if got := h.Quantile(q); got < want || got > want*(1+1.0/64)+1 {
			t.Fatalf("Quantile(%v) is %v, want %v within a bucket", q, got, want)
		}
		if mean := sum / float64(len(all)); math.Abs(h.Mean()-mean) > mean/64+1 {
			t.Fatalf("Mean is %v, want %v", h.Mean(), mean)
		}
		p := newPoint(&Series{Times: h}, nil)
		if got := p.quantile(q); got != h.Quantile(q) {
			t.Fatalf("the fast quantile of %v is %v, want %v", q, got, h.Quantile(q))
		}
	})
}

// TestRoundTrip: what is written is read again.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &File{Header: map[string]string{"machine": "16 cores: some", "date": "2026-11-26"}}
		for range rapid.IntRange(0, 4).Draw(t, "series") {
			bytes := float64(rapid.IntRange(0, 1<<20).Draw(t, "bytes"))
			s := Series{Name: "append", Keys: map[string]float64{"bytes": bytes}}
			for _, ns := range durations(t, 20) {
				s.Times.Add(ns)
			}
			f.Series = append(f.Series, s)
		}
		var first, second bytes.Buffer
		if err := f.Write(&first); err != nil {
			t.Fatal(err)
		}
		again, err := Read("test", bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Write(&second); err != nil || second.String() != first.String() {
			t.Fatalf("%v: it is written as\n%s\nand then as\n%s", err, first.String(), second.String())
		}
	})
}

// TestReadRefuses: an error names the line and what is wrong.
func TestReadRefuses(t *testing.T) {
	const head = firstLine + "\ndate: today\n\n"
	for text, want := range map[string]string{
		"":                                "test: invalid file of times: it is empty",
		"something":                       `test:1: invalid file of times: the first line is "something"`,
		firstLine + "\nno colon\n":        `test:2: invalid file of times: "no colon" is no line of a header`,
		firstLine + "\na: 1\na: 2\n":      `test:3: invalid file of times: "a: 2" is no line of a header`,
		head + "append bytes=1\n":         `test:4: invalid file of times: "append bytes=1" is no series`,
		head + "append bytes=x :\n":       `test:4: invalid file of times: key "bytes=x" of series append`,
		head + "append a=1 a=2 :\n":       `key "a=2" of series append`,
		head + "append a=NaN :\n":         `key "a=NaN" of series append`,
		head + "append : 12*x\n":          `bucket "12*x" of series append`,
		head + "append : 12*1 12*1\n":     `bucket "12*1" of series append`,
		head + "append : 1025*1\n":        `bucket "1025*1" of series append`,
		head + "append : -1*1\n":          `bucket "-1*1" of series append`,
		head + "append : 12*0\n":          `bucket "12*0" of series append`,
		head + "ap/pend : 12*1\n":         `"ap/pend : 12*1" is no series`,
		head + strings.Repeat("x", 2<<20): "test:4: ",
	} {
		_, err := Read("test", strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: error %v, want %q", text, err, want)
		}
		if len(text) < maxLine && !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40q: error %v, want an ErrInvalid", text, err)
		}
	}
	for name, f := range map[string]*File{
		"a header":     {Header: map[string]string{"a b": "1"}},
		"a long value": {Header: map[string]string{"a": "1\n2"}},
		"a name":       {Series: []Series{{Name: ""}}},
		"a key":        {Series: []Series{{Name: "a", Keys: map[string]float64{"b": math.Inf(1)}}}},
	} {
		if err := f.Write(&bytes.Buffer{}); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: Write returns %v, want an ErrInvalid", name, err)
		}
	}
}

// FuzzRead: any bytes are refused, or are a file that is written and read again without a change.
func FuzzRead(f *testing.F) {
	f.Add([]byte(firstLine + "\nmachine: m\n\nappend bytes=65536 cpu=81250.5 : 1024000*3 1040384*17\n"))
	f.Add([]byte(firstLine + "\n\na :\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Read("fuzz", bytes.NewReader(data))
		if err != nil {
			return
		}
		var first, second bytes.Buffer
		if err := file.Write(&first); err != nil {
			t.Fatalf("Write of a file that was read: %v", err)
		}
		again, err := Read("fuzz", bytes.NewReader(first.Bytes()))
		if err != nil {
			t.Fatalf("Read of a file that was written: %v\n%s", err, first.String())
		}
		if err := again.Write(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Fatalf("%v: another file\n%s\n%s", err, first.String(), second.String())
		}
	})
}

func constant(name string, ns int64, keys map[string]float64) Series {
	s := Series{Name: name, Keys: keys}
	for range 10 {
		s.Times.Add(ns)
	}
	return s
}

// TestCurve: between measured conditions, and beyond the last, times are on a straight line; below
// the first they equal the first.
func TestCurve(t *testing.T) {
	f := &File{}
	for _, bytes := range []float64{0, 1024, 4096} {
		for _, k := range []float64{1, 4} {
			ns := int64(1<<20 + 1<<10*bytes + 1<<20*k) // of buckets exactly: all are multiples of 2^20
			keys := map[string]float64{"bytes": bytes, "k": k, "cpu": bytes}
			f.Series = append(f.Series, constant("append", ns, keys))
		}
	}
	table, err := NewTable(map[string][]string{"append": {"bytes", "k"}, "other": {"bytes"}}, f)
	if err != nil {
		t.Fatal(err)
	}
	c, err := table.Curve("append")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ bytes, k, want float64 }{
		{1024, 1, 3 << 20},
		{2048, 1, 4 << 20},
		{8192, 1, 10 << 20},
		{1024, 2, 4 << 20},
		{1024, 0, 3 << 20},
		{2048, 2.5, 5.5 * (1 << 20)},
		{1024, 8, 10 << 20},
	} {
		for _, q := range []float64{0.001, 0.5} {
			got := c.Draw(q, test.bytes, test.k)
			if math.Abs(got/test.want-1) > 0.01 {
				t.Errorf("Draw(%v) of %v bytes and %v streams is %v, want %v", q, test.bytes, test.k, got, test.want)
			}
		}
	}
	if got := c.Key("cpu", 2048, 1); got != 2048 {
		t.Errorf(`Key("cpu") of 2048 bytes is %v, want 2048`, got)
	}
	if _, err := table.Curve("other"); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "[append]") {
		t.Errorf("Curve of another name: %v, want an ErrInvalid that names append", err)
	}
	if _, err := NewTable(map[string][]string{"append": {"rows"}}, f); !errors.Is(err, ErrInvalid) {
		t.Errorf("NewTable without the key of an axis: %v, want an ErrInvalid", err)
	}
}

// TestDraw: random quantiles have the distribution of the measurements.
func TestDraw(t *testing.T) {
	s := Series{Name: "a", Keys: map[string]float64{"b": 1}}
	for i := range 1000 {
		s.Times.Add(int64(i * i * 100))
	}
	table, err := NewTable(map[string][]string{"a": {"b"}}, &File{Series: []Series{s}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := table.Curve("a")
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i := range 10_000 {
		sum += c.Draw((float64(i)+0.5)/10_000, 1)
	}
	if mean := sum / 10_000; math.Abs(mean/s.Times.Mean()-1) > 0.01 {
		t.Errorf("the mean of draws is %v, want %v", mean, s.Times.Mean())
	}
}
