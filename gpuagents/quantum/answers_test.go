package quantum

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// read measures all qubits of a circuit into the bits of their numbers.
func (b *builder) read() *builder {
	b.Bits = b.Qubits
	for q := range b.Qubits {
		b.measure(q, q)
	}
	return b
}

func (b *builder) add(name string, qubits ...int) *builder { return b.gate(name, nil, qubits...) }

// TestAnswers: circuits whose readings are known. A reading that is not in the list must not come,
// and each of the list has the same share.
func TestAnswers(t *testing.T) {
	const shots = 4000
	qft := build(t, 5, 0).add("x", 0).add("x", 2).qft() // of |5>, and back again
	back, err := qft.Inverse()
	testkit.NoError(t, "Inverse", err)
	qft.Ops = append(qft.Ops, back.Ops...)
	for q, one := range []bool{true, false, true, false, false} {
		if one { // undoes what Inverse has undone too
			qft.add("x", q)
		}
	}
	ghz := build(t, 20, 0).add("h", 0)
	for q := range 19 {
		ghz.add("cx", q, q+1)
	}
	hidden := build(t, 9, 0).add("x", 8)
	for q := range 9 {
		hidden.add("h", q)
	}
	for _, q := range []int{0, 3, 4, 7} {
		hidden.add("cx", q, 8)
	}
	for q := range 9 {
		hidden.add("h", q)
	}
	hidden.add("x", 8)
	grover := build(t, 3, 0).add("h", 0).add("h", 1).add("h", 2)
	for range 2 { // looks for 5; the probability of another one is 0.055
		grover.add("x", 1).add("h", 2).add("ccx", 0, 1, 2).add("h", 2).add("x", 1)
		for q := range 3 {
			grover.add("h", q).add("x", q)
		}
		grover.add("h", 2).add("ccx", 0, 1, 2).add("h", 2)
		for q := range 3 {
			grover.add("x", q).add("h", q)
		}
	}
	// W of three qubits: one of three is 1.
	w := build(t, 3, 0).gate("ry", []float64{2 * math.Acos(math.Sqrt(2.0/3))}, 0).add("x", 0)
	w.add("ch", 0, 1).add("cx", 1, 2).add("cx", 0, 1).add("x", 0)
	// Phase estimation of p(2 pi 5/16) with four bits.
	phase := build(t, 5, 0).add("x", 4)
	for q := range 4 {
		phase.add("h", q).gate("cp", []float64{2 * math.Pi * 5 / 16 * float64(int(1)<<q)}, q, 4)
	}
	fourier, err := build(t, 4, 0).qft().Inverse()
	testkit.NoError(t, "Inverse", err)
	phase.Ops = append(phase.Ops, fourier.Ops...)
	phase.add("x", 4)
	s := open(t, Options{})
	for name, c := range map[string]struct {
		b    *builder
		want []uint64
		rest float64
	}{
		"Bell":             {build(t, 2, 0).add("h", 0).add("cx", 0, 1), []uint64{0, 3}, 0},
		"GHZ":              {ghz, []uint64{0, 1<<20 - 1}, 0},
		"W":                {w, []uint64{1, 2, 4}, 0},
		"QFT":              {qft, []uint64{5}, 0},
		"hidden bits":      {hidden, []uint64{0b10011001}, 0},
		"Grover":           {grover, []uint64{5}, 0.08},
		"phase estimation": {phase, []uint64{5}, 0},
	} {
		counts := CountsOf(rows(t, s, Batch{Circuit: &c.b.read().Circuit, Shots: shots, Seed: 3})[0].Samples, c.b.Bits)
		found := 0
		for _, reading := range c.want {
			n, share := float64(counts.Of[reading]), float64(shots)/float64(len(c.want))
			if math.Abs(n-share) > 6*math.Sqrt(share)+c.rest*shots {
				t.Errorf("%s: %s came %v times of %d", name, counts.Text(reading), n, shots)
			}
			found += counts.Of[reading]
		}
		if float64(shots-found) > c.rest*shots {
			t.Errorf("%s: %v", name, counts.Of)
		}
	}
	if text := (Counts{Bits: 4}).Text(5); text != "0101" {
		t.Errorf("%q, want 0101", text)
	}
}

// TestTeleportation: the state of qubit 0 arrives at qubit 2, whatever the two bits are.
func TestTeleportation(t *testing.T) {
	s := open(t, Options{})
	b := build(t, 3, 3).gate("u3", []float64{1.1, 0.4, 0.2}, 0)
	b.add("h", 1).add("cx", 1, 2).add("cx", 0, 1).add("h", 0).measure(0, 0).measure(1, 1)
	b.add("x", 2).when(1, 1, 1).add("z", 2).when(0, 1, 1)
	b.gate("u3", []float64{-1.1, -0.2, -0.4}, 2).measure(2, 2)
	for bits, n := range CountsOf(rows(t, s, Batch{Circuit: &b.Circuit, Shots: 2000, Seed: 1})[0].Samples, 3).Of {
		if bits&4 != 0 || n < 350 || n > 650 {
			t.Errorf("%03b came %d times of 2000, want 500 times with bit 2 at 0", bits, n)
		}
	}
	// Run makes one trajectory, and its bits are in each reading of the state.
	st := zeros(t, s, 3)
	testkit.NoError(t, "Run", s.Run(t.Context(), st, &b.Circuit))
	counts, err := s.Measure(t.Context(), st, 100, 5)
	testkit.NoError(t, "Measure", err)
	if len(counts.Of) != 1 {
		t.Errorf("a state that has collapsed has the readings %v", counts.Of)
	}
}

// TestInverse: a random circuit and its inverse give |0...0>, and the norm stays.
func TestInverse(t *testing.T) {
	qubits := testkit.Of(24, 16)
	s := open(t, Options{})
	b := build(t, qubits, 0).random(rand.New(rand.NewPCG(21, 22)), 500)
	back, err := b.Inverse()
	testkit.NoError(t, "Inverse", err)
	b.Ops = append(b.Ops, back.Ops...)
	st := zeros(t, s, qubits)
	testkit.NoError(t, "Run", s.Run(t.Context(), st, &b.Circuit))
	all, err := s.Probabilities(t.Context(), st)
	testkit.NoError(t, "Probabilities", err)
	norm, err := s.Norm(t.Context(), st)
	testkit.NoError(t, "Norm", err)
	if math.Abs(float64(all[0])-1) > 1e-5 || math.Abs(norm-1) > 1e-5 {
		t.Errorf("the probability of 0 is %v and the norm %v, want 1", all[0], norm)
	}
}

// TestHighIndices: gates on every qubit of a register whose indices have more than 32 bits, by
// basis states: on a device with room for it. A test of the largest one takes most of the memory of
// an H200.
func TestHighIndices(t *testing.T) {
	s := open(t, Options{})
	if s.d.Properties().ComputeMajor == 0 {
		t.Skip("a state of 32 qubits takes 32 GiB of a device")
	}
	for _, qubits := range []int{32, 33, 34} {
		if s.room(qubits) != nil {
			continue
		}
		for _, unplanned := range []bool{true, false} {
			s.unplanned = unplanned
			// Each qubit becomes 1 by its neighbour, and about every third one 0 again.
			b, want := build(t, qubits, 0).add("x", qubits-1), uint64(1)<<(qubits-1)
			cx := func(control, target int) {
				b.add("cx", control, target)
				want ^= want >> control & 1 << target
			}
			for q := qubits - 2; q >= 0; q-- {
				cx(q+1, q)
			}
			for q := 0; q < qubits; q += 3 {
				cx((q+1)%qubits, q)
			}
			b.gate("p", []float64{0.4}, qubits-2).add("swap", 0, qubits-1)
			top, low := want>>(qubits-1)&1, want&1
			want = want&^(1|1<<(qubits-1)) | low<<(qubits-1) | top
			row := rows(t, s, Batch{
				Circuit: &b.read().Circuit, Shots: 10, Seed: 1, Expect: []string{"Z" + strings.Repeat("I", qubits-1)},
			})[0]
			for _, got := range row.Samples {
				if got != want {
					t.Fatalf("%d qubits, unplanned %v: %b was read, want %b", qubits, unplanned, got, want)
				}
			}
			if sign := float64(1 - 2*int(want>>(qubits-1)&1)); math.Abs(row.Values[0]-sign) > 1e-6 {
				t.Errorf("%d qubits: Z of the highest qubit is %v, want %v", qubits, row.Values[0], sign)
			}
		}
	}
}

// TestOtherState: states of other simulators, of other sizes and closed ones are refused.
func TestOtherState(t *testing.T) {
	s, other := open(t, Options{}), open(t, Options{})
	st := zeros(t, other, 2)
	c := &build(t, 2, 0).add("h", 0).Circuit
	if err := s.Run(t.Context(), st, c); err == nil {
		t.Error("a state of another simulator is run")
	}
	if err := other.Run(t.Context(), st, &circuit.Circuit{Qubits: 3}); err == nil {
		t.Error("a circuit of three qubits runs on two")
	}
	if _, err := other.Measure(t.Context(), st, 0, 1); err == nil {
		t.Error("0 shots are drawn")
	}
	testkit.NoError(t, "Close", st.Close())
	if _, err := other.Amplitudes(t.Context(), st); err == nil {
		t.Error("a closed state is read")
	}
}
