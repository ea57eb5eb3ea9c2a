package lanes

import (
	"unsafe"

	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// languageCall has the arguments of the routines of language models. Their places are known there.
type languageCall struct {
	a, b    unsafe.Pointer // 0, 8
	chunks  int            // 16: of 128 numbers
	vectors int            // 24: of 8 numbers, behind the chunks
	sums    unsafe.Pointer // 32: of 128 numbers
	result  float32        // 40
}

// Dot returns the sum of products of the numbers of a and b, a multiple of 8 of them, in the order
// of RFC 0076: 128 partial sums, each fused, and a tree of them. It has the same bits on every
// processor.
func Dot(a, b []float32) float32 {
	b = b[:len(a)]
	var sums [128]float32
	if !Available() || len(a) == 0 {
		return dotPlain(a, b, &sums)
	}
	c := languageCall{
		a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), chunks: len(a) / 128, vectors: len(a) % 128 / 8,
		sums: unsafe.Pointer(&sums),
	}
	dot(&c)
	return c.result
}

// dotPlain is the twin of dot.
func dotPlain(a, b []float32, sums *[128]float32) float32 {
	for i, v := range a {
		sums[i%128] = fmath.FMA(v, b[i], sums[i%128])
	}
	for l := range 32 {
		of := sums[4*l:][:4]
		sums[l] = (of[0] + of[1]) + (of[2] + of[3])
	}
	for d := 16; d > 0; d /= 2 {
		for l := range d {
			sums[l] += sums[l+d]
		}
	}
	return sums[0]
}

// Score is Dot for the few numbers of a head: eight partial sums.
func Score(a, b []float32) float32 {
	b = b[:len(a)]
	if !Available() || len(a) == 0 {
		return scorePlain(a, b)
	}
	c := languageCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), vectors: len(a) / 8}
	score(&c)
	return c.result
}

// scorePlain is the twin of score.
func scorePlain(a, b []float32) float32 {
	var s [8]float32
	for i, v := range a {
		s[i%8] = fmath.FMA(v, b[i], s[i%8])
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

// AddScaled adds v times the numbers of b, a multiple of 8 of them, to a, each rounded once.
func AddScaled(a, b []float32, v float32) {
	b = b[:len(a)]
	if !Available() || len(a) == 0 {
		addScaledPlain(a, b, v)
		return
	}
	addScaled(&languageCall{a: unsafe.Pointer(&a[0]), b: unsafe.Pointer(&b[0]), vectors: len(a) / 8, result: v})
}

// addScaledPlain is the twin of addScaled.
func addScaledPlain(a, b []float32, v float32) {
	for i, x := range b {
		a[i] = fmath.FMA(v, x, a[i])
	}
}
