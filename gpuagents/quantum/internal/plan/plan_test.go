package plan

import (
	"math/bits"
	"math/cmplx"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// randomGates returns gates of all classes with up to three controls. The slot is the number of the
// gate.
func randomGates(r *rand.Rand, qubits, n int) (all []Gate) {
	for i := range n {
		on := r.Perm(qubits)
		g := Gate{Class: Class(1 + r.IntN(int(Phase))), Target: on[0], PerRow: true, Slot: uint64(i)}
		for _, q := range on[1 : 1+r.IntN(4)] {
			g.Controls |= 1 << q
		}
		g.Values = g.Controls & r.Uint64()
		if g.Class == Diagonal && r.IntN(2) == 0 {
			g.Parity = r.Uint64N(1<<qubits) &^ g.Controls &^ (1 << g.Target)
		}
		all = append(all, g)
	}
	return all
}

// commute reports whether two gates may change places, by their definition: on a qubit that both
// have, both are diagonal.
func commute(a, b *Gate) bool {
	for q := range 64 {
		bit := uint64(1) << q
		if (a.turns()|a.reads())&bit != 0 && (b.turns()|b.reads())&bit != 0 && (a.turns()|b.turns())&bit != 0 {
			return false
		}
	}
	return true
}

// TestPasses: each gate is in one pass, gates that do not commute keep their order, and each pass
// has a tile that the kernel accepts.
func TestPasses(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for i := range testkit.Of(300, 60) {
		s := Shape{Qubits: quantumset.MinQubits + r.IntN(26), Single: i%4 == 0, Fresh: i%3 == 0}
		gates := randomGates(r, s.Qubits, 1+r.IntN(700))
		given := slices.Clone(gates)
		passes := s.Passes(gates)
		var order []uint64
		for k, p := range passes {
			checkPass(t, s, &p, k == 0)
			for _, g := range p.Gates {
				order = append(order, g.Slot)
			}
		}
		at := make([]int, len(given))
		for k, slot := range order {
			at[slot] = k
		}
		if sorted := slices.Sorted(slices.Values(order)); len(sorted) != len(given) ||
			len(slices.Compact(sorted)) != len(given) {
			t.Fatalf("circuit %d: %d gates are in the passes, want %d", i, len(order), len(given))
		}
		for k := range given {
			for m := range k {
				if at[m] > at[k] && !commute(&given[m], &given[k]) {
					t.Fatalf("circuit %d: gate %d goes before gate %d", i, k, m)
				}
			}
		}
		if s.Single && len(passes) != len(given) {
			t.Fatalf("circuit %d: %d passes for %d gates", i, len(passes), len(given))
		}
	}
}

func checkPass(t *testing.T, s Shape, p *Pass, first bool) {
	t.Helper()
	index := max(s.Qubits, quantumset.TileQubits)
	switch {
	case bits.OnesCount64(p.Tile) != quantumset.TileQubits || p.Tile>>index != 0 || p.Tile&15 != 15:
		t.Fatalf("the tile is %b of %d qubits", p.Tile, index)
	case p.Fixed&p.Tile != 0 || p.Values&^p.Fixed != 0 || p.Fixed>>s.Qubits != 0:
		t.Fatalf("%b is fixed at %b beside the tile %b", p.Fixed, p.Values, p.Tile)
	case p.Fresh != (s.Fresh && first) || p.Fresh && p.Fixed != 0:
		t.Fatalf("fresh is %v, and %b fixed", p.Fresh, p.Fixed)
	}
	for _, g := range p.Gates {
		if g.turns()&^p.Tile != 0 || p.Fixed&^g.Controls != 0 || (g.Values^p.Values)&p.Fixed != 0 {
			t.Fatalf("%+v in the tile %b with %b at %b", g, p.Tile, p.Fixed, p.Values)
		}
	}
	inTile := 0
	for i, h := range p.phases {
		var seen uint64
		for k := range quantumset.TileQubits {
			seen |= 1 << (h.order >> (4 * k) & 15)
		}
		if seen != 1<<quantumset.TileQubits-1 {
			t.Fatalf("the positions %x are no permutation", h.order)
		}
		for k := range quantumset.HeldQubits {
			position := int(h.order >> (4 * k) & 15)
			if p.qubit(position) >= s.Qubits {
				t.Fatalf("a thread holds the amplitudes of several rows")
			}
			if position < coalesced && (i == 0 || i == len(p.phases)-1) {
				t.Fatalf("phase %d of %d holds position %d", i, len(p.phases), position)
			}
		}
		if trades := h.order >> quantumset.PhaseTrades; trades != 0 {
			before := p.phases[i-1].order
			for k := range quantumset.HeldQubits {
				if lane := trades >> (4 * k) & 15; lane > 0 {
					other := quantumset.HeldQubits + lane - 1
					differ := (before>>(4*k) ^ before>>(4*other)) & 15
					before ^= differ<<(4*k) | differ<<(4*other)
				}
			}
			if (before^h.order)<<(64-quantumset.PhaseTrades) != 0 {
				t.Fatalf("phase %d has the order %x, and the one before becomes %x", i, h.order, before)
			}
		}
		if h.first != inTile {
			t.Fatalf("a phase begins with gate %d, want %d", h.first, inTile)
		}
		inTile = h.end
	}
	if words := p.Words(); len(words)%2 != 0 || inTile*quantumset.GateWords != len(p.gates) {
		t.Fatalf("%d words, and %d gates of %d", len(words), inTile, len(p.gates)/quantumset.GateWords)
	}
	if c := p.Cost(1 << index); c.Bytes == 0 || c.Bytes > 16<<index {
		t.Fatalf("a pass of %d qubits moves %d bytes", index, c.Bytes)
	}
}

// TestControlledPass: a gate with a control above the lowest qubits visits half of the tiles.
func TestControlledPass(t *testing.T) {
	for target := range 16 {
		for control := range 16 {
			if control == target {
				continue
			}
			g := Gate{Class: Real, Target: target, Controls: 1 << control, Matrix: circuit.Matrix{1, 0, 0, 1}}
			p := Shape{Qubits: 16, Single: true}.Passes([]Gate{g})[0]
			want := uint64(1 << 3)
			if control < coalesced {
				want = 1 << 4
			}
			if got := p.Tiles(1 << 16); got != want {
				t.Errorf("target %d, control %d: %d tiles, want %d", target, control, got, want)
			}
		}
	}
}

// TestRenumber: the numbers are a permutation, and moved gates are on the new numbers.
func TestRenumber(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 100 {
		s := Shape{Qubits: 13 + r.IntN(21)}
		gates := randomGates(r, s.Qubits, 1+r.IntN(100))
		numbers := s.Renumber(gates)
		for q, n := range slices.Sorted(slices.Values(numbers)) {
			if q != n {
				t.Fatalf("%v is no permutation", numbers)
			}
		}
		g := gates[0]
		moved := g
		moved.Move(numbers)
		for q, n := range numbers {
			if moved.Controls>>n&1 != g.Controls>>q&1 || moved.Values>>n&1 != g.Values>>q&1 {
				t.Fatalf("%+v becomes %+v by %v", g, moved, numbers)
			}
		}
	}
}

// TestSplit: a dense gate is the product of what it becomes.
func TestSplit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	times := func(b, a circuit.Matrix) circuit.Matrix {
		return circuit.Matrix{
			b[0]*a[0] + b[1]*a[2], b[0]*a[1] + b[1]*a[3], b[2]*a[0] + b[3]*a[2], b[2]*a[1] + b[3]*a[3],
		}
	}
	for range 1000 {
		angle := func() circuit.Angle { return circuit.Number(7 * (r.Float64() - 0.5)) }
		m, err := circuit.Unitary{Theta: angle(), Phi: angle(), Lambda: angle(), Gamma: angle()}.Matrix(nil)
		testkit.NoError(t, "Matrix", err)
		g := Gate{Class: Dense, Matrix: m}
		product := circuit.Matrix{1, 0, 0, 1}
		all := split([]Gate{g, g})
		if len(all) == 2 {
			continue // too near to a diagonal gate
		}
		for _, part := range all[:3] {
			by := circuit.Matrix{1, 0, 0, part.Matrix[0]}
			tangent, scale := part.Matrix[0], part.Matrix[3]
			switch part.Class {
			case turn:
				by = circuit.Matrix{scale, -scale * tangent, scale * tangent, scale}
			case pivot:
				by = circuit.Matrix{scale * tangent, -scale, scale, scale * tangent}
			}
			product = times(by, product)
		}
		for i := range m {
			if cmplx.Abs(product[i]-m[i]) > 1e-12 {
				t.Fatalf("%v becomes the product %v", m, product)
			}
		}
	}
}
