package quantum

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// randomAngle is a constant, a multiple of an input and a constant, or a sum or a product of
// inputs.
func randomAngle(r *rand.Rand, inputs int) circuit.Angle {
	in := circuit.Input(r.IntN(inputs))
	switch r.IntN(5) {
	case 0:
		return circuit.Number([]float64{0, math.Pi, math.Pi / 2, r.NormFloat64()}[r.IntN(4)])
	case 1:
		return in.Times(r.NormFloat64()).Plus(circuit.Number(r.NormFloat64()))
	case 2:
		return in.Plus(circuit.Input(r.IntN(inputs)).Neg())
	case 3:
		return circuit.Combine(func(x, y float64) float64 { return x * y }, in, circuit.Input(r.IntN(inputs)))
	}
	return in
}

// TestRecipes: the matrices that the device makes are the matrices of package circuit, for angles
// up to some 2^50, products, powers, conditions and gates whose last element counts.
func TestRecipes(t *testing.T) {
	const inputs, rows = 5, 40
	s, r := open(t, Options{}), rand.New(rand.NewPCG(51, 52))
	for i := range testkit.Of(100, 20) {
		var gates []*gate
		for len(gates) < 12 {
			b := build(t, 1, 0)
			switch r.IntN(3) {
			case 0:
				b.symbolic([]string{"rx", "ry", "rz", "p"}[r.IntN(4)], []circuit.Angle{randomAngle(r, inputs)}, 0)
			default:
				b.symbolic("u3", []circuit.Angle{
					randomAngle(r, inputs), randomAngle(r, inputs), randomAngle(r, inputs),
				}, 0)
			}
			u := &b.Ops[0].Unitary
			if r.IntN(6) == 0 {
				u.Power = 0.5
			}
			g, err := newGate(u, 0, 0, 0)
			testkit.NoError(t, "newGate", err)
			if n := len(gates); n > 0 && r.IntN(3) == 0 && gates[n-1].fuse(&g) {
				continue
			}
			if r.IntN(6) == 0 {
				g.condition(circuit.Condition{Count: 1, Value: 1})
			}
			if g.PerRow {
				gates = append(gates, &g)
			}
		}
		gates = slices.DeleteFunc(gates, func(g *gate) bool { return !g.PerRow })
		v, err := s.newVector(rows, 1)
		testkit.NoError(t, "newVector", err)
		of := &rowsOf{v: v, bits: make([]uint64, rows)}
		for row := range rows {
			in := make([]float64, inputs)
			for k := range in {
				in[k] = 10 * r.NormFloat64()
				if r.IntN(8) == 0 {
					in[k] = math.Ldexp(r.NormFloat64(), r.IntN(24))
				}
			}
			of.inputs, of.bits[row] = append(of.inputs, in), r.Uint64N(2)
		}
		g := &segment{recipes: newRecipes(gates, inputs)}
		testkit.NoError(t, "hostFor", s.hostFor(0, &program{segments: []segment{*g}}, v.rows))
		matrices, err := s.matrices(g, of, nil)
		testkit.NoError(t, "matrices", err)
		testkit.NoError(t, "Sync", s.stream.Sync(t.Context()))
		got := make([]float32, 8*len(gates)*int(v.rows))
		testkit.NoError(t, "Read", matrices.Read(0, device.Bytes(got)))
		for slot, gate := range gates {
			for row := range rows {
				want, err := gate.row(of, row, nil)
				testkit.NoError(t, "row", err)
				have := got[8*(slot*int(v.rows)+row):][:8]
				for k, w := range want {
					d := complex(float64(have[2*k]), float64(have[2*k+1])) - w
					if !(math.Hypot(real(d), imag(d)) < 1e-7) {
						t.Fatalf("circuit %d, slot %d, row %d of %v: element %d is %v, want %v", i, slot, row,
							of.inputs[row], k, have[2*k:2*k+2], w)
					}
				}
			}
		}
		testkit.NoError(t, "close", v.close())
	}
}

// TestFarAngles: finite inputs whose angles are not finite are refused, also where only one row has
// some.
func TestFarAngles(t *testing.T) {
	s := open(t, Options{})
	for i, angle := range []circuit.Angle{
		circuit.Input(0).Times(1e300), circuit.Input(0).Times(math.Inf(1)),
		circuit.Combine(func(x, y float64) float64 { return x * y }, circuit.Input(0), circuit.Input(0)),
	} {
		b := build(t, 1, 0)
		b.Inputs = []string{"a"}
		b.symbolic("rx", []circuit.Angle{angle}, 0)
		rowsSeen := 0
		err := s.RunBatch(t.Context(), Batch{Circuit: &b.Circuit, Inputs: [][]float64{{0.5}, {1e200}}},
			func(int, *Row) error { rowsSeen++; return nil })
		if err == nil || rowsSeen > 0 {
			t.Errorf("angle %d: %v behind %d rows, want an error", i, err, rowsSeen)
			continue
		}
		want := "row 1"
		if i == 1 { // infinite for each input but 0
			want = "row 0"
		}
		if !strings.Contains(err.Error(), want) {
			t.Errorf("angle %d: %v, want %s", i, err, want)
		}
	}
}
