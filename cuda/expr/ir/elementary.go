package ir

import (
	"cmp"
	"math"
	"unsafe"

	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// internal/codegen/prelude.cuh has the same functions, operation by operation, and they give the
// same bits. Conversions to float32 around products keep the compiler from fusing them with
// additions, which the language allows; fused operations are calls of fmath.FMA. A change here
// needs the same change there and changes the results of all programs.

// exp32 returns e to the power of x, within 2 units in the last place; 0 and infinity beyond the
// range. x is k ln 2 + r; the polynomial is from Cephes.
func exp32(x float32) float32 {
	if !(x < 89 && x > -104) {
		switch {
		case x != x:
			return x
		case x > 0:
			return float32(math.Inf(1))
		}
		return 0
	}
	// Adding 1.5 * 2^23 and taking it away again rounds to a whole number.
	k := fmath.FMA(x, 1.44269502, 12582912) + -12582912
	r := fmath.FMA(k, 2.12194440e-4, fmath.FMA(k, -0.693359375, x))
	y := fmath.FMA(1.9875691500e-4, r, 1.3981999507e-3)
	y = fmath.FMA(y, r, 8.3334519073e-3)
	y = fmath.FMA(y, r, 4.1665795894e-2)
	y = fmath.FMA(y, r, 1.6666665459e-1)
	y = fmath.FMA(y, r, 5.0000001201e-1)
	y = fmath.FMA(y, float32(r*r), r) + 1
	n := int32(k)
	h := n >> 1
	// Two factors, because 2^k may be no normal number.
	return float32(float32(y*math.Float32frombits(uint32(h+127)<<23)) * math.Float32frombits(uint32(n-h+127)<<23))
}

// log32 returns the natural logarithm, within 2 units in the last place, -infinity for 0 and NaN
// below. The argument is x = m 2^e with m in [1/2, 1); the polynomial is from Cephes.
func log32(x float32) float32 {
	if !(x > 0) {
		if x == 0 {
			return float32(math.Inf(-1))
		}
		return float32(math.NaN())
	}
	v := math.Float32bits(x)
	if v >= 0x7f800000 {
		return x
	}
	e := int32(0)
	if v < 0x00800000 { // subnormal
		v, e = math.Float32bits(float32(x*8388608)), -23
	}
	e += int32(v>>23) - 126
	m := math.Float32frombits(v&0x7fffff | 0x3f000000)
	// m is brought to [sqrt(1/2) - 1, sqrt(2) - 1), where the polynomial holds.
	if m < 0.707106781 {
		e--
		m = float32(m+m) - 1
	} else {
		m--
	}
	z, f := float32(m*m), float32(e)
	y := fmath.FMA(7.0376836292e-2, m, -1.1514610310e-1)
	y = fmath.FMA(y, m, 1.1676998740e-1)
	y = fmath.FMA(y, m, -1.2420140846e-1)
	y = fmath.FMA(y, m, 1.4249322787e-1)
	y = fmath.FMA(y, m, -1.6668057665e-1)
	y = fmath.FMA(y, m, 2.0000714765e-1)
	y = fmath.FMA(y, m, -2.4999993993e-1)
	y = fmath.FMA(y, m, 3.3333331174e-1)
	y = float32(float32(y*m) * z)
	y = fmath.FMA(f, -2.12194440e-4, y)
	y = fmath.FMA(z, -0.5, y)
	// ln 2 is two constants, the larger one with few bits, so that its product is exact.
	return fmath.FMA(f, 0.693359375, float32(m+y))
}

// tanh32 returns the hyperbolic tangent, within 3 units in the last place: by exp32 from 0.625 on,
// and by a polynomial below.
func tanh32(x float32) float32 {
	a := fmath.Abs(x)
	if a >= 0.625 {
		r := float32(1)
		if a <= 9.1 {
			r = 1 - float32(2/float32(exp32(float32(a+a))+1))
		}
		if x > 0 {
			return r
		}
		return -r
	}
	z := float32(x * x)
	y := fmath.FMA(-5.70498872745e-3, z, 2.06390887954e-2)
	y = fmath.FMA(y, z, -5.37397155531e-2)
	y = fmath.FMA(y, z, 1.33314422036e-1)
	y = fmath.FMA(y, z, -3.33332819422e-1)
	return fmath.FMA(float32(y*z), x, x)
}

// floor32 returns the largest whole number not above v. Floats from 2^23 on are whole.
func floor32(v float32) float32 {
	if !(v < 8388608 && v > -8388608) {
		return v
	}
	return float32(math.Floor(float64(v)))
}

// min32 returns the smaller operand, NaN if one is NaN, and a if they are equal, as 0 and -0 are.
func min32(a, b float32) float32 {
	if a != a || !(b < a || b != b) {
		return a
	}
	return b
}

// max32 returns the larger operand, NaN if one is NaN, and a if they are equal.
func max32(a, b float32) float32 {
	if a != a || !(b > a || b != b) {
		return a
	}
	return b
}

// toInt converts toward zero and saturates; NaN becomes 0.
func toInt(v float32) int32 {
	switch {
	case v != v:
		return 0
	case v >= 1<<31:
		return math.MaxInt32
	case v <= -1<<31:
		return math.MinInt32
	}
	return int32(v)
}

// toUint converts toward zero and saturates; NaN and negative numbers become 0.
func toUint(v float32) uint32 {
	switch {
	case !(v > 0):
		return 0
	case v >= 1<<32:
		return math.MaxUint32
	}
	return uint32(v)
}

// toByte converts as toUint does, to at most 255.
func toByte(v float32) uint32 {
	switch {
	case !(v > 0):
		return 0
	case v >= 255:
		return 255
	}
	return uint32(v)
}

// RoundBF16 rounds to the nearest bf16, ties to even. All NaN become one.
func RoundBF16(v float32) float32 {
	if v != v {
		return math.Float32frombits(0x7fc00000)
	}
	bits := math.Float32bits(v)
	return math.Float32frombits((bits + 0x7fff + bits>>16&1) &^ 0xffff)
}

func roundBits(a uint32) uint32 { return math.Float32bits(RoundBF16(math.Float32frombits(a))) }

func same(a uint32) uint32 { return a }

func intToFloat(a uint32) uint32 { return math.Float32bits(float32(int32(a))) }

func uintToFloat(a uint32) uint32 { return math.Float32bits(float32(a)) }

// sqrt32 is the rounded square root: the square root of a float32 has one rounding by way of
// float64.
func sqrt32(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func add[T float32 | uint32](a, b T) T { return a + b }

func smaller[T int32 | uint32](a, b T) T { return min(a, b) }

func larger[T int32 | uint32](a, b T) T { return max(a, b) }

// divide divides toward zero, and by 0 to 0. Go wraps the smallest int32 / -1.
func divide[T int32 | uint32](a, b T) T {
	if b == 0 {
		return 0
	}
	return a / b
}

// remainder returns the rest with the sign of a, and 0 for b = 0.
func remainder[T int32 | uint32](a, b T) T {
	if b == 0 {
		return 0
	}
	return a % b
}

func less[T cmp.Ordered](a, b T) bool { return a < b }

func lessEqual[T cmp.Ordered](a, b T) bool { return a <= b }

func equal[T cmp.Ordered](a, b T) bool { return a == b }

func notEqual[T cmp.Ordered](a, b T) bool { return a != b }

// truth returns the register form of a bool.
func truth(v bool) uint32 {
	if v {
		return 1
	}
	return 0
}

// shl shifts left; a shift by 32 or more gives 0.
func shl(a, b uint32) uint32 {
	if b > 31 {
		return 0
	}
	return a << b
}

// shrUint shifts right; a shift by 32 or more gives 0.
func shrUint(a, b uint32) uint32 {
	if b > 31 {
		return 0
	}
	return a >> b
}

// shrInt shifts right with the sign; a shift by 32 or more, or by a negative number, gives the
// sign.
func shrInt(a, b int32) int32 {
	if uint32(b) > 31 {
		b = 31
	}
	return a >> b
}

// Philox returns the first word of Philox 4x32-10 with the counter {row, row >> 32, stream, 0} and
// the key {seed, 0}.
func Philox(row uint64, seed, stream uint32) uint32 {
	c0, c1, c2, c3, k0, k1 := uint32(row), uint32(row>>32), stream, uint32(0), seed, uint32(0)
	for range 10 {
		p, q := uint64(0xD2511F53)*uint64(c0), uint64(0xCD9E8D57)*uint64(c2)
		c0, c1, c2, c3 = uint32(q>>32)^c1^k0, uint32(q), uint32(p>>32)^c3^k1, uint32(p)
		k0 += 0x9E3779B9
		k1 += 0xBB67AE85
	}
	return c0
}

// onFloats returns a function of floats as a function of their bits.
func onFloats(f func(a, b float32) float32) func(a, b uint32) uint32 {
	return func(a, b uint32) uint32 {
		return math.Float32bits(f(math.Float32frombits(a), math.Float32frombits(b)))
	}
}

// onInts returns a function of signed numbers as a function of their bits.
func onInts(f func(a, b int32) int32) func(a, b uint32) uint32 {
	return func(a, b uint32) uint32 { return uint32(f(int32(a), int32(b))) }
}

func asFloats(v []uint32) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(v))), len(v))
}

// eachFloat returns a function of floats as a function of blocks.
func eachFloat(f func(float32) float32) func(v [3][]uint32, out []uint32) {
	return func(v [3][]uint32, out []uint32) {
		to := asFloats(out)
		for i, x := range asFloats(v[0]) {
			to[i] = f(x)
		}
	}
}

// The loops over floats are apart, so that the compiler makes few instructions of each.

func addFloats(v [3][]uint32, out []uint32) {
	to, b := asFloats(out), asFloats(v[1])
	for i, x := range asFloats(v[0]) {
		to[i] = x + b[i]
	}
}

func subFloats(v [3][]uint32, out []uint32) {
	to, b := asFloats(out), asFloats(v[1])
	for i, x := range asFloats(v[0]) {
		to[i] = x - b[i]
	}
}

func mulFloats(v [3][]uint32, out []uint32) {
	to, b := asFloats(out), asFloats(v[1])
	for i, x := range asFloats(v[0]) {
		to[i] = x * b[i]
	}
}

func divFloats(v [3][]uint32, out []uint32) {
	to, b := asFloats(out), asFloats(v[1])
	for i, x := range asFloats(v[0]) {
		to[i] = x / b[i]
	}
}

func minFloats(v [3][]uint32, out []uint32) {
	to, b := asFloats(out), asFloats(v[1])
	for i, x := range asFloats(v[0]) {
		to[i] = min32(x, b[i])
	}
}

func maxFloats(v [3][]uint32, out []uint32) {
	to, b := asFloats(out), asFloats(v[1])
	for i, x := range asFloats(v[0]) {
		to[i] = max32(x, b[i])
	}
}

// choose is the selection, for which both values are computed.
func choose(v [3][]uint32, out []uint32) {
	for i, c := range v[0] {
		out[i] = v[2][i]
		if c != 0 {
			out[i] = v[1][i]
		}
	}
}
