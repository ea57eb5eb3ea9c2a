package circuit

import (
	"math"
	"math/cmplx"
)

// rounding is the largest error of a component of a matrix, or of a phase, that is made of few
// products.
const rounding = 0x1p-50

// clean makes the components 0 that are 0 but for rounding: cos(pi/2) is 6e-17 in float64. A matrix
// that is diagonal on paper has zeros beside its diagonal, and simulators look for them.
func (m Matrix) clean() Matrix {
	zero := func(x float64) float64 {
		if math.Abs(x) < rounding {
			return 0
		}
		return x
	}
	for i, v := range m {
		m[i] = complex(zero(real(v)), zero(imag(v)))
	}
	return m
}

// power returns the principal power of a unitary matrix: its eigenvalues exp(i a) become
// exp(i k a) with a in (-pi, pi].
//
// A unitary is exp(i alpha) (cos(beta) - i sin(beta) n.sigma) with a unit vector n and the Pauli
// matrices sigma. n.sigma has the eigenvalues 1 and -1, so a is alpha-beta and alpha+beta.
func (m Matrix) power(k float64) Matrix {
	alpha := cmplx.Phase(m[0]*m[3]-m[1]*m[2]) / 2
	for i := range m {
		m[i] *= cmplx.Exp(complex(0, -alpha))
	}
	cos := real(m[0]+m[3]) / 2
	x, y, z := -imag(m[1]+m[2])/2, real(m[2]-m[1])/2, imag(m[3]-m[0])/2
	sin := math.Sqrt(x*x + y*y + z*z)
	if sin < rounding {
		x, y, z = 0, 0, sin // both eigenvalues are the same: any n does
	}
	beta := math.Atan2(sin, cos)
	plus, minus := principal(alpha-beta, k), principal(alpha+beta, k)
	mean, half := (plus+minus)/2, (plus-minus)/2
	n := func(v float64) complex128 {
		if sin == 0 {
			return 0
		}
		return complex(v/sin, 0)
	}
	return Matrix{
		mean + half*n(z), half * (n(x) - 1i*n(y)),
		half * (n(x) + 1i*n(y)), mean - half*n(z),
	}
}

// principal returns exp(i k a) with a moved into (-pi, pi]. A phase that is -pi but for rounding is
// pi, so that the power of -1 does not depend on rounding.
func principal(a, k float64) complex128 {
	a = math.Remainder(a, 2*math.Pi)
	if a < -math.Pi+16*rounding {
		a = math.Pi
	}
	return cmplx.Exp(complex(0, k*a))
}
