package opponents

import "math"

// Gaussian is the windowed Gaussian detector of the Numenta Anomaly Benchmark (Lavin and Ahmad,
// 2015): the tail probability of a value under the mean and deviation of the last rows. The largest
// score of the features counts.
type Gaussian struct {
	// Mean and deviation are over Window rows. The window moves by Step rows at a time.
	Window, Step int
}

// Name implements Detector.
func (Gaussian) Name() string { return "windowed Gaussian" }

// Score implements Detector.
func (g Gaussian) Score(rows []float32, features int) []float32 {
	scores := make([]float32, len(rows)/features)
	for f := range features {
		var window, next []float64
		mean, deviation := 0.0, 1.0
		for row := range scores {
			v := float64(rows[row*features+f])
			if len(window) > 0 {
				scores[row] = max(scores[row], bounded(tail(math.Abs(v-mean)/deviation), 10))
			}
			if len(window) < g.Window {
				window = append(window, v)
				mean, deviation = moments(window)
			} else if next = append(next, v); len(next) == g.Step {
				window = append(window[g.Step:], next...)
				next = next[:0]
				mean, deviation = moments(window)
			}
		}
	}
	return scores
}

// tail is minus the logarithm of the probability that a normal value exceeds z deviations, minus
// its value at 0 deviations. It keeps the order where the probability is 0 in float64.
func tail(z float64) float64 {
	if z < 30 {
		return -math.Log(math.Erfc(z / math.Sqrt2))
	}
	return z*z/2 + math.Log(z*math.Sqrt(math.Pi/2))
}

// moments returns mean and deviation. A deviation of 0 is 0.000001, as in the benchmark.
func moments(window []float64) (mean, deviation float64) {
	for _, v := range window {
		mean += v
	}
	mean /= float64(len(window))
	for _, v := range window {
		deviation += (v - mean) * (v - mean)
	}
	deviation = math.Sqrt(deviation / float64(len(window)))
	if deviation == 0 {
		deviation = 0.000001
	}
	return mean, deviation
}
