package fmath

import "math"

// FMA returns a*b + c rounded once to the nearest float32, ties to even. The product of two float32
// is exact in float64. Its sum with c is rounded to 53 bits first, which goes wrong only where that
// lands on a tie of the second rounding that the exact sum is not: such a sum is rounded to odd
// instead, which no second rounding mistakes for a tie.
func FMA(a, b, c float32) float32 {
	p, d := float64(a)*float64(b), float64(c)
	s := p + d
	bits := math.Float64bits(s)
	const tie, below, exponent = 1 << 28, 1<<29 - 1, (1023 - 126) << 52 // of a normal float32
	if bits&below != tie && bits&^(1<<63) >= exponent {
		return float32(s)
	}
	// What the sum has lost (Knuth: The Art of Computer Programming, volume 2, 4.2.2, theorem B).
	e := s - p
	lost := (p - (s - e)) + (d - e)
	if lost != 0 && bits&1 == 0 {
		if (lost > 0) == (s > 0) {
			bits++
		} else {
			bits--
		}
		s = math.Float64frombits(bits)
	}
	return float32(s)
}

// fmaSat is FMA within [0, 1]; NaN is 0.
func fmaSat(a, b, c float32) float32 {
	switch v := FMA(a, b, c); {
	case !(v > 0):
		return 0
	case v > 1:
		return 1
	default:
		return v
	}
}

// Logistic are the coefficients of the logistic function for arguments in some unit; see
// kernels.Logistic.
type Logistic [5]float32

// At returns the logistic function to 3e-5 for |x| < 2^31.
func (c *Logistic) At(x float32) float32 {
	q := float32(x * x)
	above := float32(x * FMA(FMA(c[2], q, c[1]), q, c[0]))
	below := FMA(q+c[4], q, c[3])
	return fmaSat(above, 1/below, 0.5)
}
