// Package fmath is the float32 arithmetic of the cells: functions that have the same bits in Go and
// on a device.
//
// cuda/kernels/fmath.cuh has the functions of fmath.go a second time, operation by operation. They
// keep three rules: float32 only; a product is converted before it is added, so that Go does not
// fuse the two; no operations but + - * / and comparisons. The functions of fma.go are in
// cuda/kernels/fma.cuh and fuse every product with its sum.
package fmath

import "math"

// Min returns the smaller number, b if they do not compare. It is a comparison, because the
// built-in min treats zeros and NaN differently.
func Min(a, b float32) float32 {
	if a < b {
		return a
	}
	return b
}

// Max returns the larger number, b if they do not compare.
func Max(a, b float32) float32 {
	if a > b {
		return a
	}
	return b
}

// Clamp returns x limited to [-limit, limit]; NaN stays NaN.
func Clamp(x, limit float32) float32 {
	if x > limit {
		return limit
	}
	if x < -limit {
		return -limit
	}
	return x
}

// Abs returns x without its sign.
func Abs(x float32) float32 { return math.Float32frombits(math.Float32bits(x) &^ (1 << 31)) }

// Tanh returns the Padé approximant x(27+x²)/(27+9x²) of the hyperbolic tangent, which reaches 1 at
// 3 and stays there. It is within 0.024 of tanh, odd and monotone: enough for a recurrent unit, and
// one division.
func Tanh(x float32) float32 {
	x = Clamp(x, 3)
	q := float32(x * x)
	return float32(x*(27+q)) / (27 + float32(9*q))
}

// Exp returns the natural exponential of x in [0, 80], to 2e-4 relative: 2^i times a cubic in the
// rest of x/ln 2.
func Exp(x float32) float32 {
	y := float32(x * 1.442695)
	i := int32(y)
	f := y - float32(i)
	s := float32(f*0.0781455737) + 0.226173572
	s = float32(f*s) + 0.695556856
	s = float32(f*s) + 1
	return float32(s * math.Float32frombits(uint32(i+127)<<23))
}

// PowerOfE returns e^x to 2e-7 relative for x in [-87, 88], and the value at the end that is nearer
// for other x. PowerOfE(0) is 1. The polynomial is Cephes' (Moshier, expf.c); the kernels of
// cuda/kernels/languageset have it.
func PowerOfE(x float32) float32 {
	if x > 88 {
		x = 88
	} else if x < -87 {
		x = -87
	}
	const magic = 3 << 22 // a sum with it is rounded to an integer, which is in the last bits
	whole := float32(x*1.44269504) + magic
	n := whole - magic
	f := x - float32(n*0.693359375) // exact
	f -= float32(n * -2.12194440e-4)
	s := float32(f*1.9875691500e-4) + 1.3981999507e-3
	s = float32(f*s) + 8.3334519073e-3
	s = float32(f*s) + 4.1665795894e-2
	s = float32(f*s) + 1.6666665459e-1
	s = float32(f*s) + 5.0000001201e-1
	s = float32(float32(f*f)*s) + f + 1
	return float32(s * math.Float32frombits((math.Float32bits(whole)+127)<<23))
}

// Log2Rough returns the binary logarithm of a positive, normal x to 0.09: its exponent, and
// straight inside of an octave. It is continuous and monotone.
func Log2Rough(x float32) float32 {
	return float32(float32(int32(math.Float32bits(x)))*(1.0/(1<<23))) - 127
}

// Log returns the natural logarithm of a positive, normal x, to about 1e-7 relative: x = 2^e·m with
// m in [√½, √2), and log m = 2·artanh((m-1)/(m+1)) as a series to the ninth power.
func Log(x float32) float32 {
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
