package lanes

import "unsafe"

// The routines of amplitudes take pairs of a real and an imaginary part, a multiple of four pairs,
// and only where Available reports true. A product m*x of complex numbers is (m.re*x.re -
// m.im*x.im, m.re*x.im + m.im*x.re), whose second products are fused with the sums. A sum of
// products begins with the first one, and each further product is fused with the sum so far.

// Dense replaces the elements of a and b by m[0]*a + m[1]*b and m[2]*a + m[3]*b, for a complex
// matrix by rows.
func Dense(a, b []float32, m *[8]float32) {
	densePairs(&pairsCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), m: unsafe.Pointer(m), count: len(a) / 8})
}

// Real is Dense for a matrix of real numbers, whose sums begin with the element of the diagonal.
func Real(a, b []float32, m *[4]float32) {
	realPairs(&pairsCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), m: unsafe.Pointer(m), count: len(a) / 8})
}

// Pivot replaces the elements of a and b by t*a - b and t*b + a, each rounded once.
func Pivot(a, b []float32, t float32) {
	pivotPairs(&pairsCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), m: unsafe.Pointer(&t), count: len(a) / 8})
}

// Mixed is Real for a matrix whose first and last elements are real, and whose others are
// imaginary.
func Mixed(a, b []float32, m *[4]float32) {
	mixedPairs(&pairsCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), m: unsafe.Pointer(m), count: len(a) / 8})
}

// Scale multiplies the elements of a by a number.
func Scale(a []float32, re, im float32) {
	by := [2]float32{re, im}
	scale(&pairsCall{a: unsafe.Pointer(&a[0]), m: unsafe.Pointer(&by), count: len(a) / 8})
}

// Multiply multiplies the elements of a by the elements of b, but where the element of b is 1.
func Multiply(a, b []float32) {
	multiply(&pairsCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), count: len(a) / 8})
}

// Exchange exchanges the elements of a and b.
func Exchange(a, b []float32) {
	exchange(&pairsCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), count: len(a) / 8})
}

// Trade exchanges the elements of a whose number has a bit with the elements of b whose number is
// the same without it. The number of elements is a multiple of two to the bit, and once more two.
func Trade(a, b []float32, bit int) {
	c := pairsCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), count: len(a) / 8}
	switch bit {
	case 0:
		tradeOnes(&c)
	case 1:
		tradeTwos(&c)
	default:
		c.stride = 1 << (bit - 2)
		c.count /= 2 * c.stride
		tradeMany(&c)
	}
}

// pairsCall has the arguments of a routine in assembly. Their places are known there. count is the
// number of vectors.
type pairsCall struct {
	a, b, m unsafe.Pointer // 0, 8, 16
	count   int            // 24
	stride  int            // 32: vectors, of tradeMany
}
