// Package opponents has published anomaly detectors, written again from their papers, with which
// tests and docs/quality.md compare the cells. Nothing else uses them.
//
// All read a series row by row and look at no later row. Parameters are the defaults of the papers,
// or of the implementation that their authors published; none is chosen by results. The forest is
// there twice, as no length of its shingles is a default.
package opponents

import "math"

// Detector scores the rows of one series. rows holds the features of the rows one after the other.
// Scores are in [0, 1], one a row; a higher score is more anomalous. A Detector keeps nothing from
// one call to the next, and may be used by several goroutines.
type Detector interface {
	// Name returns the name of the method.
	Name() string
	// Score returns the scores.
	Score(rows []float32, features int) []float32
}

// All returns one detector of each method.
func All() []Detector {
	return []Detector{
		Gaussian{Window: 6400, Step: 100},
		Forest{Trees: 40, Size: 256, Shingle: 1, Seed: 1},
		Forest{Trees: 40, Size: 256, Shingle: 4, Seed: 1},
		Discord{Length: 64},
		HalfSpace{Trees: 25, Depth: 15, Window: 250, Seed: 1},
	}
}

// Taught returns one detector of each method that learns on a warm-up alone: rows at the begin of a
// series that are known to be normal. The methods are for several features.
func Taught(warmup int) []Detector {
	return []Detector{
		TSquared{Warmup: warmup, Explained: 0.95},
		Isolation{Trees: 100, Size: 256, Warmup: warmup, Seed: 1},
	}
}

// bounded maps a value from 0 on to [0, 1), keeping the order; half is the value with 1/2.
func bounded(v, half float64) float32 {
	if v <= 0 || math.IsNaN(v) {
		return 0
	}
	if math.IsInf(v, 1) {
		return 1
	}
	return float32(v / (v + half))
}
