package rows

// floats gives rows their features from slices of many rows, so that a row needs no allocation. The
// rows of a slice keep it, about 12 KiB.
type floats struct {
	features []float32
	values   []float64
}

// floatsStep is the numbers that are allocated at a time.
const floatsStep = 1024

// take returns n features and values, which are 0 and belong to the caller.
func (f *floats) take(n int) (features []float32, values []float64) {
	if len(f.features) < n {
		f.features, f.values = make([]float32, max(n, floatsStep)), make([]float64, max(n, floatsStep))
	}
	features, values = f.features[:n:n], f.values[:n:n]
	f.features, f.values = f.features[n:], f.values[n:]
	return features, values
}
