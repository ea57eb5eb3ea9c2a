// Package celltest has custom cells for the tests of several packages: built-in ones as a user
// would write them, and others with plain twins in Go, also on grids and graphs.
package celltest

import _ "embed" // the texts of the cells

// The steps of the cells.
var (
	//go:embed leaky.cu
	LeakyStep string
	//go:embed lif.cu
	LifStep string
	//go:embed oscillator.cu
	OscillatorStep string
)

// Cell is a custom cell as a spec has it.
type Cell struct {
	State      map[string]string
	Params     map[string]float64
	Step       string
	Candidates []string
}

// Leaky is the built-in cell of that name with its default parameters, but for the warmup.
func Leaky(warmup float64) Cell {
	return Cell{
		State: map[string]string{"potential": "f32", "usual": "f32", "rate": "f32", "direction": "f32[64]"},
		Params: map[string]float64{
			"tau_min": 2, "tau_max": 200, "suspicious": 4, "half": 8, "history": 1000,
			"warmup": warmup,
		},
		Step:       LeakyStep,
		Candidates: []string{"normal", "suspicious", "anomalous"},
	}
}

// Lif is the built-in cell of that name with its default parameters, but for the warmup.
func Lif(warmup float64) Cell {
	return Cell{
		State: map[string]string{
			"potential": "f32", "adaptation": "f32", "trace": "f32", "usual": "f32", "gain": "f32",
			"leak": "f32", "follow": "f32", "direction": "f32[64]",
		},
		Params: map[string]float64{
			"reach_min": 2, "reach_max": 10, "tau_min": 1, "tau_max": 4, "trace_min": 1, "trace_max": 5, "adapt": 0.2,
			"adapt_tau":  50,
			"suspicious": 2, "half": 4, "history": 1000, "warmup": warmup,
		},
		Step:       LifStep,
		Candidates: []string{"normal", "suspicious", "anomalous"},
	}
}
