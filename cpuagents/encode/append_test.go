package encode

import (
	"encoding/json"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestAppendJSON: what the sink writes by hand reads back as the standard library would have it.
func TestAppendJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.String().Draw(t, "text")
		var got string
		if err := json.Unmarshal(AppendJSON(nil, want), &got); err != nil || got != want {
			t.Fatalf("%q became %q: %v", want, got, err)
		}
		raw := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"))
		if !json.Valid(AppendJSON(nil, raw)) {
			t.Fatalf("%q became invalid JSON", raw)
		}
	})
}

func TestAppendNumber(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, v float64) {
		var got float64
		if err := json.Unmarshal(AppendNumber(nil, v, 64), &got); err != nil || got != v {
			t.Fatalf("%v became %v: %v", v, got, err)
		}
		f := float32(v)
		if math.IsInf(float64(f), 0) {
			return
		}
		if err := json.Unmarshal(AppendNumber(nil, float64(f), 32), &got); err != nil || float32(got) != f {
			t.Fatalf("%v became %v: %v", f, got, err)
		}
	}
	for _, v := range []float64{
		0, 1, -1, 1e-6, 9.99e-7, 1e21, 1e20, math.MaxFloat64, math.SmallestNonzeroFloat64,
		math.MaxFloat32,
	} {
		check(t, v)
	}
	rapid.Check(t, func(t *rapid.T) {
		check(t, rapid.Float64().Filter(func(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }).Draw(t,
			"v"))
	})
}
