package quantum

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/internal/plan"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// lowered returns the gates of a circuit without the gates that change nothing.
func lowered(b *builder) (gates []gate) {
	b.t.Helper()
	p, err := lower(&b.Circuit, identity(b.Qubits), rowQubits(b.Qubits), lowerOptions{})
	testkit.NoError(b.t, "lower", err)
	for _, s := range p.segments {
		for _, g := range s.gates {
			if !g.none() {
				gates = append(gates, g)
			}
		}
	}
	return gates
}

// TestLower: gates that become one, and the class of what they become.
func TestLower(t *testing.T) {
	input := []circuit.Angle{circuit.Input(0)}
	with := func(b *builder) *builder {
		b.Inputs = []string{"a"}
		return b
	}
	const real, diagonal, phase, exchange = plan.Real, plan.Diagonal, plan.Phase, plan.Exchange
	type classes = []plan.Class
	bit := func() *builder { return build(t, 1, 0) }
	two := func() *builder { return with(build(t, 2, 0)).add("cx", 0, 1) } // has begun
	three := func() *builder { return build(t, 3, 0) }
	one := []float64{1}
	for name, c := range map[string]struct {
		b    *builder
		want classes
	}{
		"nothing":         {build(t, 2, 0).add("id", 0).add("x", 1).add("x", 1), nil},
		"a swap":          {build(t, 2, 0).add("swap", 0, 1), nil},
		"turns":           {bit().add("h", 0).gate("ry", one, 0), classes{real}},
		"all kinds":       {bit().add("h", 0).add("x", 0).gate("rx", one, 0), classes{plan.Dense}},
		"phases stay":     {bit().add("h", 0).add("t", 0), classes{real, phase}},
		"another between": {build(t, 2, 0).add("h", 0).add("cz", 0, 1).add("h", 0), classes{real, phase, real}},
		"ZZ":              {two().gate("rz", one, 1).add("cx", 0, 1), classes{diagonal}},
		"ZZ of an input":  {two().symbolic("rz", input, 1).add("cx", 0, 1), classes{diagonal}},
		"a phase of one":  {two().symbolic("p", input, 1).add("cx", 0, 1), classes{diagonal}},
		"another CX":      {three().add("cx", 0, 1).add("t", 1).add("cx", 2, 1), classes{exchange, phase, exchange}},
		"a turned control": {
			two().add("t", 1).add("h", 0).add("cx", 0, 1), classes{exchange, phase, real, exchange},
		},
		"ZZZ": {
			three().add("cx", 0, 1).add("cx", 1, 2).add("t", 2).add("cx", 1, 2).add("cx", 0, 1),
			classes{exchange, diagonal, exchange},
		},
		"phases of one": {
			two().add("t", 0).add("t", 1).add("cz", 0, 1).add("t", 0), classes{exchange, phase, phase, phase},
		},
		"a turn between": {two().add("t", 0).add("h", 0).add("t", 0), classes{exchange, phase, real, phase}},
		"a fused turn":   {fusedTurn(t), classes{phase, plan.Dense, phase}},
		"a star": {
			three().add("cx", 0, 2).add("cx", 1, 2).add("t", 2).add("cx", 1, 2).add("cx", 0, 2), classes{diagonal},
		},
	} {
		var got []plan.Class
		for _, g := range lowered(c.b) {
			got = append(got, g.Class)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: the classes are %v, want %v", name, got, c.want)
		}
	}
}

// TestParity compares circuits of diagonal gates between CX gates with the obvious simulator, with
// known angles and with angles of inputs.
func TestParity(t *testing.T) {
	s, r := open(t, Options{}), rand.New(rand.NewPCG(31, 32))
	for i := range testkit.Of(200, 40) {
		n := 3 + r.IntN(13)
		b := build(t, n, 0).scramble(r)
		b.Inputs = []string{"a"}
		for range 30 {
			q, angle := r.Perm(n), circuit.Number(r.Float64())
			if r.IntN(2) == 0 {
				angle = circuit.Input(0)
			}
			b.add("cx", q[0], q[1])
			if r.IntN(2) == 0 {
				b.add("cx", q[2], q[1])
			}
			nested := len(b.Ops)
			b.symbolic([]string{"rz", "p", "rx"}[r.IntN(3)], []circuit.Angle{angle}, q[1])
			if b.Ops[nested-1].Controls[0].Qubit == q[2] {
				b.add("cx", q[2], q[1])
			}
			if r.IntN(5) == 0 {
				b.add("h", q[r.IntN(3)])
			}
			b.add("cx", q[0], q[1]).gate("rx", []float64{r.Float64()}, q[1])
		}
		row := rows(t, s, Batch{Circuit: &b.Circuit, Inputs: [][]float64{{0.7}}, Amplitudes: true})[0]
		want, _, err := circuittest.Run(&b.Circuit, []float64{0.7}, nil)
		testkit.NoError(t, "reference", err)
		if d := distance(row.Amplitudes, want); !(d < 1e-5) {
			t.Fatalf("circuit %d, %d qubits: the distance is %g", i, n, d)
		}
	}
}

// fusedTurn has a u3 that becomes one with the rz before it, between two equal gates of two qubits.
func fusedTurn(t *testing.T) *builder {
	return build(t, 2, 0).add("cz", 0, 1).gate("rz", []float64{1}, 0).gate("u3", []float64{1, 2, 3}, 0).add("cz", 0, 1)
}
