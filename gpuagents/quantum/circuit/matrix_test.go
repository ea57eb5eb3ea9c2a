package circuit_test

import (
	"math"
	"math/cmplx"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// angles draws one of the multiples of pi/4, where eigenvalues meet, or any angle.
func angles(t *rapid.T, label string) circuit.Angle {
	if rapid.Bool().Draw(t, label+" is special") {
		return circuit.Number(float64(rapid.IntRange(-8, 8).Draw(t, label)) * math.Pi / 4)
	}
	return circuit.Number(rapid.Float64Range(-7, 7).Draw(t, label))
}

func unitary(t *rapid.T) circuit.Unitary {
	return circuit.Unitary{
		Theta: angles(t, "theta"), Phi: angles(t, "phi"), Lambda: angles(t, "lambda"), Gamma: angles(t, "gamma"),
	}
}

func matrix(t interface{ Fatal(...any) }, u circuit.Unitary) circuit.Matrix {
	m, err := u.Matrix(nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func times(a, b circuit.Matrix) circuit.Matrix {
	return circuit.Matrix{
		a[0]*b[0] + a[1]*b[2], a[0]*b[1] + a[1]*b[3],
		a[2]*b[0] + a[3]*b[2], a[2]*b[1] + a[3]*b[3],
	}
}

func near(a, b circuit.Matrix, bound float64) bool {
	for i := range a {
		if !(cmplx.Abs(a[i]-b[i]) <= bound) {
			return false
		}
	}
	return true
}

var identity = circuit.Matrix{1, 0, 0, 1}

// TestMatrix compares with the formula of the OpenQASM 3 specification.
func TestMatrix(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := unitary(t)
		value := func(a circuit.Angle) complex128 {
			v, _ := a.Constant()
			return complex(v, 0)
		}
		e := func(a complex128) complex128 { return cmplx.Exp(1i * a) }
		theta, phi, lambda := value(u.Theta), value(u.Phi), value(u.Lambda)
		want := circuit.Matrix{
			1 + e(theta), -1i * e(lambda) * (1 - e(theta)),
			1i * e(phi) * (1 - e(theta)), e(phi+lambda) * (1 + e(theta)),
		}
		for i := range want {
			want[i] *= e(value(u.Gamma)) / 2
		}
		if got := matrix(t, u); !near(got, want, 1e-14) {
			t.Fatalf("%v, want %v", got, want)
		}
	})
}

// TestPower: roots multiply to the unitary, and their eigenvalues are in the sector of the
// principal root.
func TestPower(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := unitary(t)
		n := rapid.IntRange(2, 7).Draw(t, "n")
		root := u
		root.Power = 1 / float64(n)
		r, product := matrix(t, root), identity
		for range n {
			product = times(product, r)
		}
		if want := matrix(t, u); !near(product, want, 1e-12) {
			t.Fatalf("the root multiplies to %v, want %v", product, want)
		}
		mean := (r[0] + r[3]) / 2
		half := cmplx.Sqrt(mean*mean - (r[0]*r[3] - r[1]*r[2]))
		// A phase may be as near to -pi as it likes; TestPowerOfNamed has -pi itself.
		for _, v := range []complex128{mean + half, mean - half} {
			if a := cmplx.Phase(v); math.Abs(a) > math.Pi/float64(n)+1e-6 {
				t.Fatalf("an eigenvalue of the root has the phase %v", a)
			}
		}
	})
}

func TestPowerOfNamed(t *testing.T) {
	pi := circuit.Number(math.Pi)
	half := circuit.Number(-math.Pi / 2)
	x := circuit.Unitary{Theta: pi, Lambda: pi, Gamma: half}
	if got := matrix(t, x); got != (circuit.Matrix{0, 1, 1, 0}) && !near(got, circuit.Matrix{0, 1, 1, 0}, 1e-15) {
		t.Errorf("x is %v", got)
	}
	if got := matrix(t, x); got[0] != 0 || got[3] != 0 {
		t.Errorf("x has %v and %v on its diagonal", got[0], got[3])
	}
	minus := circuit.Unitary{Gamma: pi}
	z := circuit.Unitary{Lambda: pi}
	for _, c := range []struct {
		name  string
		u     circuit.Unitary
		power float64
		want  circuit.Matrix
	}{
		{"sqrt(x)", x, 0.5, circuit.Matrix{0.5 + 0.5i, 0.5 - 0.5i, 0.5 - 0.5i, 0.5 + 0.5i}},
		{"sqrt(z)", z, 0.5, circuit.Matrix{1, 0, 0, 1i}},
		{"1/sqrt(z)", z, -0.5, circuit.Matrix{1, 0, 0, -1i}},
		{"sqrt(-1)", minus, 0.5, circuit.Matrix{1i, 0, 0, 1i}},
		{"sqrt(1)", circuit.Unitary{}, 0.5, identity},
		{"z^3", z, 3, circuit.Matrix{1, 0, 0, -1}},
	} {
		c.u.Power = c.power
		if got := matrix(t, c.u); !near(got, c.want, 1e-14) {
			t.Errorf("%s is %v, want %v", c.name, got, c.want)
		}
	}
}

func TestInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u := unitary(t)
		u.Power = rapid.SampledFrom([]float64{0, 1, -1, 0.5, 0.3, 2.5, -3}).Draw(t, "power")
		m := matrix(t, u)
		if got := times(m, matrix(t, u.Inverse())); !near(got, identity, 1e-12) {
			t.Fatalf("u times its inverse is %v", got)
		}
		if got := matrix(t, u.Inverse().Inverse()); !near(got, m, 1e-14) {
			t.Fatalf("the inverse of the inverse is %v, want %v", got, m)
		}
	})
}
