package batch

import (
	"slices"
	"testing"
)

// TestDoubles: the values keep their 64 bits where the features are the values in 32 bits, packed
// and as Arrow. Features of another kind are what agents see.
func TestDoubles(t *testing.T) {
	for _, c := range []struct {
		features    []float32
		value, want []float64
	}{
		{[]float32{1e10, 0.1}, []float64{9999999998, 0.1}, []float64{9999999998, 0.1}},
		{[]float32{3, 0.1}, []float64{9999999998, 0.1}, []float64{3, 0.1}},
		{[]float32{1e10, 4}, []float64{9999999998}, []float64{1e10, 4}}, // the first feature alone
	} {
		o := &Observations{
			Group: []uint32{0}, Row: []uint64{1}, Time: []int64{1}, Read: []int64{1}, Timestamp: []string{"1"},
			Features: c.features, Width: 2, Value: c.value,
		}
		for name, encode := range map[string]func() ([]byte, error){"packed": o.Pack, "Arrow": o.Encode} {
			data, err := encode()
			if err != nil {
				t.Fatal(err)
			}
			back, err := DecodeObservations(data)
			if err != nil {
				t.Fatal(err)
			}
			if got := back.Doubles(0, 1); !slices.Equal(got, c.want) {
				t.Errorf("%s of %v and %v: %v, want %v", name, c.features, c.value, got, c.want)
			}
		}
	}
}
