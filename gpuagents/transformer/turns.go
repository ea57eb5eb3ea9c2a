package transformer

import (
	"math"

	"github.com/exoswarm/exoswarm/internal/base/architecture"
)

// frequencies returns the angle of each pair of a head at position 1. factors are the values of
// architecture.RopeFreqs, for that scaling only.
func frequencies(p *architecture.Parameters, factors []float32) []float64 {
	r, all := &p.Rope, make([]float64, p.HeadWidth/2)
	for i := range all {
		f := math.Pow(r.Theta, -2*float64(i)/float64(p.HeadWidth))
		switch r.Scaling {
		case architecture.Linear:
			f /= r.Factor
		case architecture.Llama3:
			wave, original := 2*math.Pi/f, float64(r.Original)
			switch {
			case wave > original/r.Low:
				f /= r.Factor
			case wave >= original/r.High:
				blend := (original/wave - r.Low) / (r.High - r.Low)
				f = float64((1-blend)*f/r.Factor) + float64(blend*f)
			}
		case architecture.Factors:
			f /= float64(factors[i])
		}
		all[i] = f
	}
	return all
}

// turns returns the table of Rotate for positions from 0 on: cosines and sines of float64, rounded
// once.
func turns(frequencies []float64, positions int) []float32 {
	all := make([]float32, 0, 2*len(frequencies)*positions)
	for at := range positions {
		for _, f := range frequencies {
			sin, cos := math.Sincos(float64(at) * f)
			all = append(all, float32(cos), float32(sin))
		}
	}
	return all
}
