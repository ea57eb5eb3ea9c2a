package opponents

import "math"

// Discord is the left matrix profile of a stream (STAMPI: Yeh et al., ICDM 2016): the distance of
// the last Length rows to the nearest stretch before them, both with mean 0 and deviation 1. With
// several features the distance is the mean of theirs (mSTAMP: Yeh et al., ICDM 2017).
type Discord struct{ Length int }

// Name implements Detector.
func (Discord) Name() string { return "matrix profile" }

// Score implements Detector. Stretches that overlap by more than half are not neighbours, as the
// paper has it.
func (d Discord) Score(rows []float32, features int) []float32 {
	n, m := len(rows)/features, d.Length
	scores := make([]float32, n)
	nearest := make([]float64, n)
	sums := make([][]float64, 0, features) // by feature, squared distances of the current row
	profiles := make([]*profile, features)
	for f := range profiles {
		profiles[f] = newProfile(rows, features, f, m)
		sums = append(sums, make([]float64, n))
	}
	for row := range n {
		nearest[row] = math.Inf(1)
		for f, p := range profiles {
			p.add(row, sums[f])
		}
		for end := m - 1; end <= row-m/2; end++ {
			distance := 0.0
			for f := range profiles {
				distance += math.Sqrt(sums[f][end])
			}
			nearest[row] = min(nearest[row], distance/float64(features))
		}
		// Two stretches with correlation -1 have the largest distance.
		if row >= 2*m && !math.IsInf(nearest[row], 1) {
			scores[row] = float32(min(nearest[row]/(2*math.Sqrt(float64(m))), 1))
		}
	}
	return scores
}

// profile has the products of the stretch that ends at the current row with all before it.
type profile struct {
	values          []float64
	length          int
	mean, deviation []float64 // of the stretch that ends at a row
	products        []float64 // by the row at which the other stretch ends
}

// newProfile reads one feature. Moments are of the rows up to each, so nothing looks ahead; values
// are less the first one, which keeps the products small.
func newProfile(rows []float32, features, f, length int) *profile {
	n := len(rows) / features
	p := &profile{
		values: make([]float64, n), length: length, mean: make([]float64, n), deviation: make([]float64, n),
		products: make([]float64, n),
	}
	for row := range p.values {
		p.values[row] = float64(rows[row*features+f]) - float64(rows[f])
		if row < length-1 {
			continue
		}
		p.mean[row], p.deviation[row] = moments(p.values[row-length+1 : row+1])
	}
	return p
}

// add computes the squared distances between the stretch that ends at row and all earlier
// stretches.
func (p *profile) add(row int, distances []float64) {
	m := p.length
	if row < m-1 {
		return
	}
	for end := row; end >= m-1; end-- {
		if row == m-1 || end == m-1 {
			p.products[end] = dot(p.values[row-m+1:row+1], p.values[end-m+1:end+1])
			continue
		}
		// products[end-1] is still the product of the row before.
		p.products[end] = p.products[end-1] - p.values[row-m]*p.values[end-m] + p.values[row]*p.values[end]
	}
	const flat = 0.000001 // the deviation of a stretch of one value, see moments
	for end := m - 1; end <= row-m/2; end++ {
		a, b := p.deviation[row], p.deviation[end]
		switch {
		case a <= flat && b <= flat:
			distances[end] = 0
		case a <= flat || b <= flat:
			distances[end] = float64(m)
		default:
			r := (p.products[end]/float64(m) - p.mean[row]*p.mean[end]) / (a * b)
			distances[end] = 2 * float64(m) * (1 - min(max(r, -1), 1))
		}
	}
}

func dot(a, b []float64) float64 {
	sum := 0.0
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}
