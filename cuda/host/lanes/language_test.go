package lanes

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLanguage: the routines of language models have the bits of their twins.
func TestLanguage(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 400 {
		n := 8 * r.IntN(80)
		a, b := make([]float32, n), make([]float32, n+r.IntN(3))
		for i := range a {
			a[i], b[i] = float32(r.NormFloat64()), float32(r.NormFloat64())
		}
		same := func(what string, got, want float32) {
			if math.Float32bits(got) != math.Float32bits(want) {
				t.Fatalf("%s of %d numbers: %v, want %v", what, n, got, want)
			}
		}
		var sums [128]float32
		same("Dot", Dot(a, b), dotPlain(a, b, &sums))
		same("Score", Score(a, b), scorePlain(a, b))
		want := slices.Clone(a)
		addScaledPlain(want, b[:n], 0.7)
		AddScaled(a, b, 0.7)
		for i := range a {
			same("AddScaled", a[i], want[i])
		}
	}
}

// BenchmarkDot is a row of weights from memory near by.
func BenchmarkDot(b *testing.B) {
	for _, n := range []int{128, 2048} {
		b.Run("", func(b *testing.B) {
			x, y := make([]float32, n), make([]float32, n)
			b.SetBytes(int64(4 * n))
			for b.Loop() {
				Dot(x, y)
			}
		})
	}
}
