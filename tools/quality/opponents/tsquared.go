package opponents

import (
	"math"
	"slices"
)

// TSquared is T-squared with Q: principal components of a warm-up, the distance of a row within
// them (Hotelling, 1947, in units of their variance), and its squared distance from them (Jackson
// and Mudholkar, Technometrics 21, 1979). The larger of both, each in units of its own limit at
// 99 %, is the score.
type TSquared struct {
	// Warmup is the number of first rows, which are normal. They have scores of 0.
	Warmup int
	// Explained is the part of the variance that the components explain.
	Explained float64
}

// Name implements Detector.
func (TSquared) Name() string { return "T-squared with Q" }

// normal99 is the 99 % quantile of the normal distribution.
const normal99 = 2.3263478740408408

// Score implements Detector. A score above 1/2 is beyond a limit. Features are in units of their
// deviation in the warm-up.
func (t TSquared) Score(rows []float32, features int) []float32 {
	scores := make([]float32, len(rows)/features)
	n := min(t.Warmup, len(scores))
	if n < 2 {
		return scores
	}
	mean, deviation := make([]float64, features), make([]float64, features)
	for f := range features {
		column := make([]float64, n)
		for row := range column {
			column[row] = float64(rows[row*features+f])
		}
		mean[f], deviation[f] = moments(column)
	}
	point := make([]float64, features)
	scaled := func(row int) []float64 {
		for f := range point {
			point[f] = (float64(rows[row*features+f]) - mean[f]) / deviation[f]
		}
		return point
	}
	covariance := make([][]float64, features)
	for f := range covariance {
		covariance[f] = make([]float64, features)
	}
	for row := range n {
		p := scaled(row)
		for i := range p {
			for j := range p {
				covariance[i][j] += p[i] * p[j] / float64(n-1)
			}
		}
	}
	variances, directions := eigen(covariance)
	kept := keep(variances, t.Explained)
	limitT, limitQ := limitT(kept, n), limitQ(variances[kept:])
	for row := n; row < len(scores); row++ {
		p := scaled(row)
		inside, squared, rest := 0.0, 0.0, 0.0
		for _, v := range p {
			rest += v * v
		}
		for k := range kept {
			along := 0.0
			for f, v := range p {
				along += v * directions[k][f]
			}
			inside += along * along
			squared += along * along / variances[k]
		}
		scores[row] = bounded(max(squared/limitT, max(rest-inside, 0)/limitQ), 1)
	}
	return scores
}

// keep returns the number of first variances that explain a part of all.
func keep(variances []float64, explained float64) int {
	all, sum := 0.0, 0.0
	for _, v := range variances {
		all += v
	}
	for k, v := range variances {
		if sum += v; sum >= explained*all {
			return k + 1
		}
	}
	return len(variances)
}

// limitT is the 99 % limit of T-squared for p components of n rows. The quantile of chi-squared is
// from Wilson and Hilferty (1931).
func limitT(p, n int) float64 {
	k := float64(p)
	quantile := k * math.Pow(1-2/(9*k)+normal99*math.Sqrt(2/(9*k)), 3)
	return quantile * (float64(n)*float64(n) - 1) / (float64(n) * max(float64(n)-k, 1))
}

// limitQ is the 99 % limit of Q for the variances of the components that are left out. Without any,
// a row is beyond the limit if it is off at all.
func limitQ(variances []float64) float64 {
	var sums [3]float64
	for _, v := range variances {
		v = max(v, 0)
		sums[0], sums[1], sums[2] = sums[0]+v, sums[1]+v*v, sums[2]+v*v*v
	}
	if sums[1] < 1e-18 {
		return 1e-6
	}
	h := 1 - 2*sums[0]*sums[2]/(3*sums[1]*sums[1])
	if h < 1e-3 { // the formula has no value; Box's approximation by chi-squared has one
		g, k := sums[1]/sums[0], sums[0]*sums[0]/sums[1]
		return g * k * math.Pow(1-2/(9*k)+normal99*math.Sqrt(2/(9*k)), 3)
	}
	inner := 1 + normal99*h*math.Sqrt(2*sums[1])/sums[0] + sums[1]*h*(h-1)/(sums[0]*sums[0])
	return sums[0] * math.Pow(inner, 1/h)
}

// eigen returns the eigenvalues of a symmetric matrix, the largest first, and a unit eigenvector of
// each, by rotations of Jacobi. It destroys the matrix.
func eigen(a [][]float64) (values []float64, vectors [][]float64) {
	n := len(a)
	vectors = make([][]float64, n) // by row
	for i := range vectors {
		vectors[i] = make([]float64, n)
		vectors[i][i] = 1
	}
	const sweeps = 50
	for range sweeps {
		off := 0.0
		for p := range n {
			for q := p + 1; q < n; q++ {
				off += a[p][q] * a[p][q]
				rotate(a, vectors, p, q)
			}
		}
		if off < 1e-20 {
			break
		}
	}
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int {
		switch {
		case a[i][i] > a[j][j]:
			return -1
		case a[i][i] < a[j][j]:
			return 1
		}
		return 0
	})
	sorted := make([][]float64, n)
	for k, i := range order {
		values, sorted[k] = append(values, a[i][i]), vectors[i]
	}
	return values, sorted
}

// rotate makes the elements (p, q) and (q, p) zero.
func rotate(a, vectors [][]float64, p, q int) {
	if a[p][q] == 0 {
		return
	}
	theta := (a[q][q] - a[p][p]) / (2 * a[p][q])
	t := math.Copysign(1, theta) / (math.Abs(theta) + math.Sqrt(theta*theta+1))
	c := 1 / math.Sqrt(t*t+1)
	s := t * c
	for k := range a {
		a[k][p], a[k][q] = c*a[k][p]-s*a[k][q], s*a[k][p]+c*a[k][q]
	}
	for k := range a {
		a[p][k], a[q][k] = c*a[p][k]-s*a[q][k], s*a[p][k]+c*a[q][k]
		vectors[p][k], vectors[q][k] = c*vectors[p][k]-s*vectors[q][k], s*vectors[p][k]+c*vectors[q][k]
	}
}
