package circuit_test

import (
	"errors"
	"math"
	"math/cmplx"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
)

// e returns exp(i x).
func e(x float64) complex128 { return cmplx.Exp(complex(0, x)) }

func c(x float64) complex128 { return complex(math.Cos(x), 0) }

func s(x float64) complex128 { return complex(math.Sin(x), 0) }

// dense is a matrix by rows. The first qubit of a gate is the lowest bit of an index.
type dense [][]complex128

// under returns m under n controls, which are the lowest bits, as OpenQASM and Qiskit order them.
func under(n int, m circuit.Matrix) dense {
	all := eye(2 << n)
	low, high := 1<<n-1, 2<<n-1
	all[low][low], all[low][high], all[high][low], all[high][high] = m[0], m[1], m[2], m[3]
	return all
}

func eye(n int) dense {
	all := make(dense, n)
	for i := range all {
		all[i] = make([]complex128, n)
		all[i][i] = 1
	}
	return all
}

// permuted returns the matrix that takes basis state from[i] to to[i] with the factor by[i], and
// leaves the others.
func permuted(n int, from, to []int, by []complex128) dense {
	all := eye(n)
	for _, f := range from {
		all[f][f] = 0
	}
	for i, f := range from {
		all[to[i]][f] = by[i]
	}
	return all
}

const a0, a1, a2, a3 = 0.7, -1.3, 2.1, 0.4 // angles of the gates below

var (
	mx  = circuit.Matrix{0, 1, 1, 0}
	my  = circuit.Matrix{0, -1i, 1i, 0}
	mz  = circuit.Matrix{1, 0, 0, -1}
	mh  = circuit.Matrix{math.Sqrt2 / 2, math.Sqrt2 / 2, math.Sqrt2 / 2, -math.Sqrt2 / 2}
	msx = circuit.Matrix{0.5 + 0.5i, 0.5 - 0.5i, 0.5 - 0.5i, 0.5 + 0.5i}
	mp  = circuit.Matrix{1, 0, 0, e(a0)}
	mrx = circuit.Matrix{c(a0 / 2), -1i * s(a0/2), -1i * s(a0/2), c(a0 / 2)}
	mry = circuit.Matrix{c(a0 / 2), -s(a0 / 2), s(a0 / 2), c(a0 / 2)}
	mrz = circuit.Matrix{e(-a0 / 2), 0, 0, e(a0 / 2)}
	mu  = circuit.Matrix{c(a0 / 2), -e(a2) * s(a0/2), e(a1) * s(a0/2), e(a1+a2) * c(a0/2)}
	mu2 = circuit.Matrix{math.Sqrt2 / 2, -e(a1) * math.Sqrt2 / 2, e(a0) * math.Sqrt2 / 2, e(a0+a1) * math.Sqrt2 / 2}
)

func scaled(f complex128, m circuit.Matrix) circuit.Matrix {
	for i := range m {
		m[i] *= f
	}
	return m
}

// standard are the matrices of the standard gates at the angles a0 to a3, as Qiskit prints them. U,
// u2 and u3 have the phases of the OpenQASM 3 specification.
var standard = map[string]dense{
	"id": under(0, identity), "u0": under(0, identity), "x": under(0, mx), "y": under(0, my), "z": under(0, mz),
	"h": under(0, mh), "s": under(0, circuit.Matrix{1, 0, 0, 1i}), "sdg": under(0, circuit.Matrix{1, 0, 0, -1i}),
	"t": under(0, circuit.Matrix{1, 0, 0, e(math.Pi / 4)}), "tdg": under(0, circuit.Matrix{1, 0, 0, e(-math.Pi / 4)}),
	"sx": under(0, msx), "sxdg": under(0, circuit.Matrix{0.5 - 0.5i, 0.5 + 0.5i, 0.5 + 0.5i, 0.5 - 0.5i}),
	"p": under(0, mp), "phase": under(0, mp), "u1": under(0, mp),
	"rx": under(0, mrx), "ry": under(0, mry), "rz": under(0, mrz),
	"U": under(0, scaled(e(a0/2), mu)), "u": under(0, mu), "u3": under(0, scaled(e(-(a1+a2)/2), mu)),
	"u2": under(0, scaled(e(-(a0+a1)/2), mu2)),
	"cx": under(1, mx), "CX": under(1, mx), "cy": under(1, my), "cz": under(1, mz), "ch": under(1, mh),
	"csx": under(1, msx), "cp": under(1, mp), "cphase": under(1, mp), "cu1": under(1, mp),
	"crx": under(1, mrx), "cry": under(1, mry), "crz": under(1, mrz), "cu3": under(1, mu),
	"cu": under(1, scaled(e(a3), mu)), "ccx": under(2, mx), "c3x": under(3, mx), "c4x": under(4, mx),
	"c3sqrtx": under(3, msx),
	"swap":    permuted(4, []int{1, 2}, []int{2, 1}, []complex128{1, 1}),
	"cswap":   permuted(8, []int{3, 5}, []int{5, 3}, []complex128{1, 1}),
	"rzz": permuted(4, []int{0, 1, 2, 3}, []int{0, 1, 2, 3},
		[]complex128{e(-a0 / 2), e(a0 / 2), e(a0 / 2), e(-a0 / 2)}),
	"rxx": {
		{c(a0 / 2), 0, 0, -1i * s(a0/2)},
		{0, c(a0 / 2), -1i * s(a0/2), 0},
		{0, -1i * s(a0/2), c(a0 / 2), 0},
		{-1i * s(a0/2), 0, 0, c(a0 / 2)},
	},
	"rccx": permuted(8, []int{3, 5, 7}, []int{7, 5, 3}, []complex128{1i, -1, -1i}),
	"rc3x": permuted(16, []int{3, 7, 11, 15}, []int{3, 15, 11, 7}, []complex128{1i, -1, -1i, 1}),
}

// columns returns the matrix of a circuit.
func columns(t *testing.T, qubits int, ops []circuit.Op) dense {
	all := eye(1 << qubits)
	for col := range all {
		state := make([]complex128, 1<<qubits)
		state[col] = 1
		state, _, err := circuittest.RunFrom(state, &circuit.Circuit{Qubits: qubits, Ops: ops}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		for row, v := range state {
			all[row][col] = v
		}
	}
	return all
}

func compare(t *testing.T, name string, got, want dense) {
	t.Helper()
	for row := range want {
		for col := range want {
			if !(cmplx.Abs(got[row][col]-want[row][col]) < 1e-14) {
				t.Errorf("%s: row %d, column %d is %v, want %v", name, row, col, got[row][col], want[row][col])
			}
		}
	}
}

// TestStandard compares every standard gate with its matrix, also on qubits in another order.
func TestStandard(t *testing.T) {
	for name, want := range standard {
		shape, ok := circuit.ShapeOf(name)
		if !ok || 1<<shape.Qubits != len(want) {
			t.Errorf("%s has the shape %v, %v", name, shape, ok)
			continue
		}
		angles := []circuit.Angle{
			circuit.Number(a0), circuit.Number(a1), circuit.Number(a2), circuit.Number(a3),
		}[:shape.Angles]
		var up, down []int
		for q := range shape.Qubits {
			up, down = append(up, q), append(down, shape.Qubits-1-q)
		}
		ops, err := circuit.Append(nil, name, angles, up...)
		if err != nil {
			t.Fatal(err)
		}
		compare(t, name, columns(t, shape.Qubits, ops), want)

		ops, err = circuit.Append(nil, name, angles, down...)
		if err != nil {
			t.Fatal(err)
		}
		reversed := func(i int) (r int) {
			for q := range shape.Qubits {
				r |= i >> q & 1 << (shape.Qubits - 1 - q)
			}
			return r
		}
		turned := eye(len(want))
		for row := range want {
			for col := range want {
				turned[reversed(row)][reversed(col)] = want[row][col]
			}
		}
		compare(t, name+" on reversed qubits", columns(t, shape.Qubits, ops), turned)
	}
}

func TestAppendRefuses(t *testing.T) {
	for _, call := range []struct {
		name   string
		angles []circuit.Angle
		qubits []int
		want   string
	}{
		{"nope", nil, []int{0}, `"nope" is no standard gate; use a name of stdgates.inc or qelib1.inc`},
		{"h", make([]circuit.Angle, 1), []int{0}, `"h" takes 0 angles and gets 1`},
		{"cswap", nil, []int{0, 1}, `"cswap" takes 3 qubits and gets 2`},
	} {
		_, err := circuit.Append(nil, call.name, call.angles, call.qubits...)
		if !errors.Is(err, circuit.ErrInvalid) || err.Error() != "invalid circuit: "+call.want {
			t.Errorf("the error is %q, want %q", err, call.want)
		}
	}
}
