package celltwin

import (
	"math"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// TestLogistic holds the logistic function, and tanh by way of it, to the error that they state,
// over all of their range, and to [0, 1]; in other units it is the same to the bit.
func TestLogistic(t *testing.T) {
	worst := 0.0
	one := fmath.Logistic(kernels.Logistic(0))
	check := func(x float32) {
		got, want := one.At(x), 1/(1+math.Exp(-float64(x)))
		if !(got >= 0 && got <= 1) {
			t.Fatalf("logistic of %v: %v", x, got)
		}
		worst = max(worst, math.Abs(float64(got)-want))
		for _, e := range []int{9, 18, 6 + kernels.AgentMostScale} {
			of := fmath.Logistic(kernels.Logistic(e))
			by := float32(math.Ldexp(float64(x), e))
			if scaled := of.At(by); math.Abs(float64(by)) < 1<<31 && math.Abs(float64(x)) > 1e-20 && scaled != got {
				t.Fatalf("logistic of %v by 2^%d: %v, want %v", x, e, scaled, got)
			}
		}
	}
	for x := -20.0; x < 20; x += 1e-4 {
		check(float32(x))
	}
	for e := -140; e < 31; e++ {
		for _, m := range []float64{1, 1.3, 1.9999} {
			check(float32(math.Ldexp(m, e)))
			check(float32(-math.Ldexp(m, e)))
		}
	}
	if worst > 3e-5 || worst < 1e-6 {
		t.Errorf("largest error %g, want 3e-5 and a comparison that sees it", worst)
	}
	if one.At(0) != 0.5 {
		t.Error("padded units do not stay zero")
	}
}
