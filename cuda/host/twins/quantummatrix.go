package twins

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
)

func init() { Register(quantumset.Matrix, stateMatrix) }

// wide is a complex number of float64 as matrix.cu has it. Conversions keep products from being
// fused.
type wide struct{ re, im float64 }

func (a wide) times(b wide) wide {
	return wide{float64(a.re*b.re) - float64(a.im*b.im), float64(a.re*b.im) + float64(a.im*b.re)}
}

func (a wide) plus(b wide) wide { return wide{a.re + b.re, a.im + b.im} }

func (a wide) scaled(by float64) wide { return wide{float64(a.re * by), float64(a.im * by)} }

// stateMatrix is the twin of matrix.cu.
func stateMatrix(b *Block, a *quantumset.MatrixBound) {
	factors := a.Recipes[a.Slots:]
	first, end := b.Part(a.Made * uint64(a.Slots))
	for i := first; i < end; i++ {
		slot, row := i/a.Made, i%a.Made
		recipe, in := a.Recipes[slot], a.Columns[row*uint64(a.Width):][:a.Width]
		from, to := uint64(uint32(recipe)), recipe>>32&(1<<31-1)
		m := [4]wide{{re: 1}, {}, {}, {re: 1}}
		for f := from; f < to; f++ {
			by := factorOf(factors[f*quantumset.FactorWords:][:quantumset.FactorWords], in)
			if f == from {
				m = by
				continue
			}
			m = [4]wide{
				by[0].times(m[0]).plus(by[1].times(m[2])), by[0].times(m[1]).plus(by[1].times(m[3])),
				by[2].times(m[0]).plus(by[3].times(m[2])), by[2].times(m[1]).plus(by[3].times(m[3])),
			}
		}
		if recipe&quantumset.RecipeLast != 0 {
			m[0] = m[3]
		}
		out := a.Matrices[8*(slot*a.Rows+row):][:8]
		for k, v := range m {
			out[2*k], out[2*k+1] = float32(v.re), float32(v.im)
		}
	}
}

// factorOf returns the matrix of a factor in a row.
func factorOf(words []uint64, in []float64) (m [4]wide) {
	var numbers [8]float64
	for k := range numbers {
		numbers[k] = math.Float64frombits(words[quantumset.FactorNumbers+k])
	}
	switch words[0] {
	case quantumset.FactorUnitary:
		var a [4]float64
		for k := range a {
			if a[k] = numbers[2*k]; numbers[2*k+1] != 0 {
				column := uint32(words[quantumset.FactorColumns+k/2] >> (32 * (k % 2)))
				a[k] += float64(numbers[2*k+1] * in[column])
			}
		}
		return unitary(a[0], a[1], a[2], a[3])
	case quantumset.FactorGiven:
		copy(numbers[:], in[words[quantumset.FactorColumns]:][:8])
	}
	for k := range m {
		m[k] = wide{numbers[2*k], numbers[2*k+1]}
	}
	return m
}

// unitary returns exp(i gamma) U(theta, phi, lambda).
func unitary(theta, phi, lambda, gamma float64) (m [4]wide) {
	if theta == 0 && phi == 0 && gamma == -0.5*lambda {
		g := circle(gamma)
		m = [4]wide{g, {}, {}, {g.re, -g.im}}
	} else {
		const right = math.Pi / 2
		half := circle(0.5 * theta)
		switch phase := gamma + float64(0.5*theta); {
		case phase == 0 && phi == 0 && lambda == 0:
			m = [4]wide{{re: half.re}, {re: -half.im}, {re: half.im}, {re: half.re}}
		case phase == 0 && phi == -right && lambda == right:
			m = [4]wide{{re: half.re}, {im: -half.im}, {im: -half.im}, {re: half.re}}
		default:
			by, p, l := circle(phase), circle(phi), circle(lambda)
			c, s := by.scaled(half.re), by.scaled(half.im)
			ls := l.times(s)
			m = [4]wide{c, {-ls.re, -ls.im}, p.times(s), p.times(l).times(c)}
		}
	}
	for k, v := range m {
		m[k] = wide{clean(v.re), clean(v.im)}
	}
	return m
}

// clean makes 0 what is 0 but for rounding.
func clean(x float64) float64 {
	if math.Abs(x) < 0x1p-50 {
		return 0
	}
	return x
}

// circle returns exp(i x) for a finite x.
func circle(x float64) wide {
	const twoPi = 6.283185307179586
	if math.Abs(x) > 1<<20 {
		rest := math.Mod(x, twoPi)
		if math.Abs(x) < 1<<53 {
			rest -= float64(math.RoundToEven((x-rest)/twoPi) * 2.4492935982947064e-16) // what float64 misses of 2 pi
		}
		x = rest
	}
	n := math.RoundToEven(x * 6.36619772367581382433e-01)
	r := (x - float64(n*1.57079632673412561417e+00)) - float64(n*6.07710050650619224932e-11)
	z := float64(r * r)
	sin := r + float64(float64(z*r)*polynomial(z, &sines))
	cos := 1 - (float64(0.5*z) - float64(z*float64(z*polynomial(z, &cosines))))
	switch int(n) & 3 {
	case 0:
		return wide{cos, sin}
	case 1:
		return wide{-sin, cos}
	case 2:
		return wide{-cos, -sin}
	}
	return wide{sin, -cos}
}

// The polynomials of fdlibm.
var (
	sines = [6]float64{
		-1.66666666666666324348e-01, 8.33333333332248946124e-03, -1.98412698298579493134e-04,
		2.75573137070700676789e-06, -2.50507602534068634195e-08, 1.58969099521155010221e-10,
	}
	cosines = [6]float64{
		4.16666666666666019037e-02, -1.38888888888741095749e-03, 2.48015872894767294178e-05,
		-2.75573143513906633035e-07, 2.08757232129817482790e-09, -1.13596475577881948265e-11,
	}
)

func polynomial(z float64, of *[6]float64) float64 {
	p := of[5]
	for i := 4; i >= 0; i-- {
		p = of[i] + float64(z*p)
	}
	return p
}
