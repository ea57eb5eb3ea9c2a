package host

import "math"

// The functions of this file are written a second time in cuda/kernels/fmath.cuh, operation by
// operation, and give the same bits there. They hold to three rules: float32 only; a product is
// converted before it meets a sum, which keeps Go from fusing the two; nothing but + - * / and
// comparisons.

// min32 and max32 are written as comparisons because the built-in min and max order zeros and NaN
// in a way of their own.
func min32(a, b float32) float32 {
	if a < b {
		return a
	}
	return b
}

func max32(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}

// clamp32 limits x to [-limit, limit].
func clamp32(x, limit float32) float32 {
	if x > limit {
		return limit
	}
	if x < -limit {
		return -limit
	}
	return x
}

func abs32(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// tanh32 is the Padé approximant x(27+x²)/(27+9x²) of the hyperbolic tangent, which reaches 1 at 3
// and stays there. It is within 0.024 of tanh, odd and monotone: enough for a recurrent unit, and
// one division.
func tanh32(x float32) float32 {
	x = clamp32(x, 3)
	q := float32(x * x)
	return float32(x*(27+q)) / (27 + float32(9*q))
}

// log32 is the natural logarithm of a positive, normal x, to about 1e-7 relative: x = 2^e·m with m
// in [√½, √2), and log m = 2·artanh((m-1)/(m+1)) as a series to the ninth power.
func log32(x float32) float32 {
	bits := math.Float32bits(x)
	e := int32(bits>>23) - 127
	m := math.Float32frombits(bits&0x7fffff | 0x3f800000)
	if m > 1.4142135 {
		m = float32(m * 0.5)
		e++
	}
	f := (m - 1) / (m + 1)
	q := float32(f * f)
	s := float32(q*(1.0/9)) + 1.0/7
	s = float32(q*s) + 1.0/5
	s = float32(q*s) + 1.0/3
	s = float32(q*s) + 1
	return float32(float32(e)*0.69314718) + float32(float32(2*f)*s)
}
