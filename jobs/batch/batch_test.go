package batch

import (
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/jobs"
)

func drawObservations(t *rapid.T) *Observations {
	n := rapid.IntRange(0, 40).Draw(t, "rows")
	o := &Observations{Width: rapid.IntRange(1, 4).Draw(t, "width")}
	for range n {
		o.Group = append(o.Group, rapid.Uint32().Draw(t, "group"))
		o.Row = append(o.Row, rapid.Uint64().Draw(t, "row"))
		o.Time = append(o.Time, rapid.Int64().Draw(t, "time"))
		o.Read = append(o.Read, rapid.Int64().Draw(t, "read"))
		o.Timestamp = append(o.Timestamp, rapid.String().Draw(t, "timestamp"))
		o.Value = append(o.Value, rapid.Float64().Draw(t, "value"))
		for range o.Width {
			o.Features = append(o.Features, rapid.Float32().Draw(t, "feature"))
		}
	}
	return o
}

func same(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }

func TestObservationsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawObservations(t)
		data, err := want.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeObservations(data)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmp.Comparer(same), cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
	})
}

func TestDecisionsRoundTrip(t *testing.T) {
	want := &Decisions{
		Group: []uint32{3, 0}, Row: []uint64{1, 2}, Read: []int64{-5, math.MaxInt64},
		Timestamp: []string{"2026-01-01", "é"},
		Value:     []float64{1.5, math.Copysign(0, -1)}, Score: []float32{0, 1}, Decision: []uint32{2, NoDecision},
		Counts: []uint32{1, 2, 3, 4, 5, 6}, Candidates: 3, Leader: []uint64{0, math.MaxUint64}, Round: []uint64{1, 9},
	}
	data, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeDecisions(data)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got, cmp.Comparer(same)); d != "" {
		t.Fatal(d)
	}
	if _, err := DecodeObservations(data); !isInvalid(err) {
		t.Fatalf("decisions read as observations: %v", err)
	}
}

// TestValues: all features of a row travel in full precision, and a batch with the first alone, as
// earlier versions made them, is read.
func TestValues(t *testing.T) {
	o := &Observations{
		Group: []uint32{1, 2}, Row: []uint64{1, 1}, Time: []int64{1, 2}, Read: []int64{1, 2}, Width: 2,
		Features:  []float32{1, 2, 3, 4},
		Timestamp: []string{"a", "b"}, Value: []float64{1, 0.1, 3, math.Pi},
	}
	data, err := o.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeObservations(data)
	if err != nil || cmp.Diff(o, got) != "" {
		t.Fatal(err, cmp.Diff(o, got))
	}
	d := &Decisions{
		Group: o.Group, Row: o.Row, Read: o.Read, Timestamp: o.Timestamp, Value: got.Value, Score: []float32{0, 1},
		Decision: []uint32{0, 0},
		Counts:   []uint32{1, 2}, Candidates: 1, Leader: []uint64{0, 0}, Round: []uint64{1, 1},
	}
	for _, c := range []struct {
		value  []float64
		second float64 // of the second row
		has    bool
	}{{o.Value, math.Pi, true}, {[]float64{1, 3}, 0, false}} {
		d.Value = c.value
		if data, err = d.Encode(); err != nil {
			t.Fatal(err)
		}
		back, err := DecodeDecisions(data)
		if err != nil {
			t.Fatal(err)
		}
		first, _ := back.Feature(1, 0)
		if v, ok := back.Feature(1, 1); first != 3 || v != c.second || ok != c.has {
			t.Errorf("%v: features %v and %v, %v", c.value, first, v, ok)
		}
	}
	o.Value = o.Value[:3]
	if _, err := o.Encode(); err == nil {
		t.Error("encoded a batch whose rows have different numbers of values")
	}
}

func isInvalid(err error) bool {
	var e *jobs.Error
	return errors.As(err, &e) && (e.Code == jobs.CodeInvalid || e.Code == jobs.CodeVersion)
}

func TestEncodeRefusesRaggedColumns(t *testing.T) {
	o := &Observations{
		Group: []uint32{1, 2}, Row: []uint64{1}, Time: []int64{1, 2}, Read: []int64{1, 2}, Width: 1,
		Features: []float32{1, 2}, Timestamp: []string{"", ""}, Value: []float64{1, 2},
	}
	if _, err := o.Encode(); err == nil {
		t.Fatal("encoded a batch with a short column")
	}
}

// FuzzDecode: whatever arrives, a decoder answers with a batch whose columns agree in length or
// with an invalid-class error; it never panics.
func FuzzDecode(f *testing.F) {
	o := &Observations{
		Group: []uint32{1}, Row: []uint64{1}, Time: []int64{1}, Read: []int64{1}, Width: 2,
		Features: []float32{1, 2}, Timestamp: []string{"t"}, Value: []float64{1},
	}
	data, err := o.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Add([]byte{})
	for i := range data {
		broken := append([]byte{}, data...)
		broken[i] ^= 0x81
		f.Add(broken)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		o, err := DecodeObservations(data)
		if err != nil {
			if !isInvalid(err) {
				t.Fatalf("error of the wrong class: %v", err)
			}
			return
		}
		n := o.Len()
		if len(o.Row) != n || len(o.Time) != n || len(o.Read) != n || len(o.Timestamp) != n || len(o.Value) != n &&
			len(o.Value) != n*o.Width || len(o.Features) != n*o.Width {
			t.Fatal("columns of different length")
		}
		for _, s := range o.Timestamp {
			_ = len(s)
		}
	})
}

// FuzzDecodeDecisions is FuzzDecode for decisions.
func FuzzDecodeDecisions(f *testing.F) {
	d := &Decisions{
		Group: []uint32{1}, Row: []uint64{1}, Read: []int64{1}, Timestamp: []string{"t"}, Value: []float64{1},
		Score:    []float32{0.5},
		Decision: []uint32{NoDecision}, Counts: []uint32{1, 2}, Candidates: 2, Leader: []uint64{1}, Round: []uint64{1},
	}
	data, err := d.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	for i := range data {
		broken := append([]byte{}, data...)
		broken[i] ^= 0x81
		f.Add(broken)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := DecodeDecisions(data)
		if err != nil {
			if !isInvalid(err) {
				t.Fatalf("error of the wrong class: %v", err)
			}
			return
		}
		n := d.Len()
		if len(d.Row) != n || len(d.Read) != n || len(d.Timestamp) != n || len(d.Value) != n || len(d.Score) != n ||
			len(d.Decision) != n || len(d.Leader) != n ||
			len(d.Round) != n || len(d.Counts) != n*d.Candidates {
			t.Fatal("columns of different length")
		}
	})
}
