package quantum

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/cmplx"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// open returns a simulator on the device of the tests.
func open(t testing.TB, o Options) *Simulator {
	t.Helper()
	d := opentest.Device(t)
	s, err := New(d, o)
	testkit.NoError(t, "New", err)
	testkit.Close(t, s)
	return s
}

// zeros returns a state whose qubits are 0.
func zeros(t testing.TB, s *Simulator, qubits int) State {
	t.Helper()
	st, err := s.PrepareState(t.Context(), make([]float32, qubits), Basis)
	testkit.NoError(t, "PrepareState", err)
	testkit.Close(t, st)
	return st
}

// amplitudes runs a circuit from |0...0>.
func amplitudes(t testing.TB, s *Simulator, c *circuit.Circuit) []complex64 {
	t.Helper()
	st := zeros(t, s, c.Qubits)
	testkit.NoError(t, "Run", s.Run(t.Context(), st, c))
	all, err := s.Amplitudes(t.Context(), st)
	testkit.NoError(t, "Amplitudes", err)
	testkit.NoError(t, "Close", st.Close())
	return all
}

// distance is the norm of the difference of two states.
func distance(got []complex64, want []complex128) float64 {
	sum := 0.0
	for i, w := range want {
		d := complex128(got[i]) - w
		sum += real(d)*real(d) + imag(d)*imag(d)
	}
	return math.Sqrt(sum)
}

// builder makes circuits of standard gates.
type builder struct {
	t testing.TB
	circuit.Circuit
}

func build(t testing.TB, qubits, bits int) *builder {
	return &builder{t, circuit.Circuit{Qubits: qubits, Bits: bits}}
}

func (b *builder) gate(name string, angles []float64, qubits ...int) *builder {
	b.t.Helper()
	of := make([]circuit.Angle, len(angles))
	for i, a := range angles {
		of[i] = circuit.Number(a)
	}
	return b.symbolic(name, of, qubits...)
}

func (b *builder) symbolic(name string, angles []circuit.Angle, qubits ...int) *builder {
	b.t.Helper()
	var err error
	b.Ops, err = circuit.Append(b.Ops, name, angles, qubits...)
	testkit.NoError(b.t, name, err)
	return b
}

func (b *builder) measure(qubit, bit int) *builder {
	b.Ops = append(b.Ops, circuit.Op{Kind: circuit.Measure, Target: qubit, Bit: bit})
	return b
}

// when puts the last operation under a condition.
func (b *builder) when(first, count int, value uint64) *builder {
	b.Ops[len(b.Ops)-1].If = circuit.Condition{First: first, Count: count, Value: value}
	return b
}

// scramble turns all qubits, so that no amplitude is 0.
func (b *builder) scramble(r *rand.Rand) *builder {
	for q := range b.Qubits {
		b.gate("u3", []float64{1 + r.Float64(), r.Float64(), r.Float64()}, q)
	}
	return b
}

// random adds random operations: unitaries of all classes with up to three controls, and swaps.
func (b *builder) random(r *rand.Rand, n int) *builder {
	names := []string{"x", "y", "z", "h", "s", "tdg", "sx", "id"}
	turns := []string{"rx", "ry", "rz", "p"}
	for range n {
		qubits := r.Perm(b.Qubits)
		switch r.IntN(6) {
		case 0:
			b.gate(names[r.IntN(len(names))], nil, qubits[0])
		case 1:
			b.gate(turns[r.IntN(len(turns))], []float64{6*r.Float64() - 3}, qubits[0])
		case 2:
			b.gate("u3", []float64{r.Float64(), 6 * r.Float64(), 6 * r.Float64()}, qubits[0])
		default:
			b.gate([]string{"x", "h", "s", "z", "y"}[r.IntN(5)], nil, qubits[0])
			if r.IntN(5) == 0 {
				b.gate(turns[r.IntN(len(turns))], []float64{6*r.Float64() - 3}, qubits[0])
				b.Ops = slices.Delete(b.Ops, len(b.Ops)-2, len(b.Ops)-1)
			}
		}
		op := &b.Ops[len(b.Ops)-1]
		if len(qubits) > 1 && r.IntN(8) == 0 {
			*op = circuit.Op{Kind: circuit.Swap, Target: qubits[0], Other: qubits[1]}
			qubits = qubits[1:]
		} else if r.IntN(10) == 0 {
			op.Unitary.Power = 0.5
		}
		for _, q := range qubits[1:min(len(qubits), 1+r.IntN(4))] {
			op.Controls = append(op.Controls, circuit.Control{Qubit: q, Zero: r.IntN(3) == 0})
		}
	}
	return b
}

func (b *builder) check(s *Simulator, what string) {
	b.t.Helper()
	want, _, err := circuittest.Run(&b.Circuit, nil, nil)
	testkit.NoError(b.t, what, err)
	if d := distance(amplitudes(b.t, s, &b.Circuit), want); !(d < 1e-5) {
		b.t.Fatalf("%s: the distance is %g, want less than 1e-5", what, d)
	}
}

// TestEveryTarget: each gate on every target, with every control, of registers of 1 to 14 qubits,
// beside the obvious simulator, with and without a plan.
func TestEveryTarget(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, unplanned := range []bool{false, true} {
		s := open(t, Options{})
		s.unplanned = unplanned
		for n := 1; n <= testkit.Of(14, 13); n++ {
			for _, gate := range []struct {
				name   string
				angles []float64
			}{
				{"x", nil},
				{"y", nil},
				{"h", nil},
				{"p", []float64{0.3}},
				{"rz", []float64{0.7}},
				{"rx", []float64{1.1}},
				{"u3", []float64{0.4, 0.5, 0.6}},
			} {
				b := build(t, n, 0).scramble(r)
				for target := range n {
					b.gate(gate.name, gate.angles, target)
					for control := range n {
						if control != target && (n < 12 || r.IntN(4) == 0 || testkit.Long()) {
							b.gate(gate.name, gate.angles, target)
							b.Ops[len(b.Ops)-1].Controls = []circuit.Control{{Qubit: control, Zero: r.IntN(4) == 0}}
						}
					}
				}
				b.check(s, fmt.Sprintf("%s, %d qubits, unplanned %v", gate.name, n, unplanned))
			}
		}
	}
}

// TestRandomCircuits compares random circuits with the obvious simulator, planned and unplanned.
func TestRandomCircuits(t *testing.T) {
	s, single := open(t, Options{}), open(t, Options{})
	single.unplanned = true
	r := rand.New(rand.NewPCG(3, 4))
	for i := range testkit.Of(300, 60) {
		b := build(t, 1+r.IntN(testkit.Of(18, 16)), 0).random(r, 1+r.IntN(200))
		b.check(s, fmt.Sprintf("circuit %d", i))
		if i%4 == 0 {
			b.check(single, fmt.Sprintf("circuit %d without a plan", i))
		}
	}
	build(t, 20, 0).random(r, 150).check(s, "20 qubits")
}

// TestPrepare: the three encodings, and what they refuse.
func TestPrepare(t *testing.T) {
	s := open(t, Options{})
	for _, c := range []struct {
		how  Encoding
		from []float32
		want []complex128
	}{
		{Amplitude, []float32{3}, []complex128{1, 0}},
		{Amplitude, []float32{3, 0, -4}, []complex128{0.6, 0, -0.8, 0}},
		{Basis, []float32{0, 1, 1}, []complex128{0, 0, 0, 0, 0, 0, 1, 0}},
		{
			Angle,
			[]float32{0.5, 1},
			[]complex128{
				complex(math.Cos(0.25)*math.Cos(0.5), 0), complex(math.Sin(0.25)*math.Cos(0.5), 0),
				complex(math.Cos(0.25)*math.Sin(0.5), 0), complex(math.Sin(0.25)*math.Sin(0.5), 0),
			},
		},
	} {
		st, err := s.PrepareState(t.Context(), c.from, c.how)
		testkit.NoError(t, "PrepareState", err)
		got, err := s.Amplitudes(t.Context(), st)
		testkit.NoError(t, "Amplitudes", err)
		if d := distance(got, c.want); len(got) != len(c.want) || !(d < 1e-6) {
			t.Errorf("%d of %v: %v, want %v", c.how, c.from, got, c.want)
		}
		testkit.NoError(t, "Close", st.Close())
		testkit.NoError(t, "Close", st.Close())
	}
	for _, c := range []struct {
		how  Encoding
		from []float32
	}{
		{Amplitude, nil},
		{Amplitude, []float32{0, 0}},
		{Amplitude, []float32{1, float32(math.NaN())}},
		{Basis, []float32{2}},
		{Angle, []float32{float32(math.Inf(1))}},
		{0, []float32{1}},
		{Basis, make([]float32, 35)},
	} {
		if _, err := s.PrepareState(t.Context(), c.from, c.how); !errors.Is(err, ErrInvalid) &&
			!errors.Is(err, circuit.ErrInvalid) {
			t.Errorf("%d of %v: %v", c.how, c.from, err)
		}
	}
	if _, err := open(t, Options{MaxQubits: 5}).PrepareState(t.Context(), make([]float32, 6), Basis); !errors.Is(err,
		ErrRoom) {
		t.Errorf("6 qubits: %v, want ErrRoom", err)
	}
}

// TestExpect compares expectation values of random Pauli strings with a plain sum.
func TestExpect(t *testing.T) {
	s, r := open(t, Options{}), rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{1, 2, 5, 9, 11, 14} {
		b := build(t, n, 0).scramble(r).random(r, 60)
		want, _, err := circuittest.Run(&b.Circuit, nil, nil)
		testkit.NoError(t, "reference", err)
		var paulis []string
		for i := range 80 {
			text := make([]byte, n)
			for k := range text {
				text[k] = "IXYZ"[r.IntN(4)]
				if i%2 == 0 {
					text[k] = "IZ"[r.IntN(2)]
				}
			}
			paulis = append(paulis, string(text))
		}
		st := zeros(t, s, n)
		testkit.NoError(t, "Run", s.Run(t.Context(), st, &b.Circuit))
		got, err := s.Expect(t.Context(), st, paulis)
		testkit.NoError(t, "Expect", err)
		for i, p := range paulis {
			if w := plainExpect(want, p); math.Abs(got[i]-w) > 1e-5 {
				t.Fatalf("%d qubits, %s: %v, want %v", n, p, got[i], w)
			}
		}
		for _, wrong := range []string{"", "IXYZIXYZIXYZIXYZ", "A" + paulis[0][1:]} {
			if _, err := s.Expect(t.Context(), st, []string{wrong}); !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", wrong, err)
			}
		}
	}
}

// plainExpect applies the letters to a copy of the state, one by one.
func plainExpect(state []complex128, paulis string) float64 {
	a := slices.Clone(state)
	for k := range paulis {
		bit := 1 << (len(paulis) - 1 - k)
		for i := range a {
			if j := i | bit; i&bit == 0 {
				switch paulis[k] {
				case 'X':
					a[i], a[j] = a[j], a[i]
				case 'Y':
					a[i], a[j] = -1i*a[j], 1i*a[i]
				case 'Z':
					a[j] = -a[j]
				}
			}
		}
	}
	sum := complex128(0)
	for i := range a {
		sum += cmplx.Conj(state[i]) * a[i]
	}
	return real(sum)
}

// TestSameBits: the state and the shots of a circuit have the same bits on the device of the tests
// and on the host device, whatever the number of blocks is.
func TestSameBits(t *testing.T) {
	host, err := New(opentest.Open(t, "host", cuda.Options{}), Options{})
	testkit.NoError(t, "New", err)
	testkit.Close(t, host)
	host.blocks = 3
	s, r := open(t, Options{}), rand.New(rand.NewPCG(41, 42))
	for i := range testkit.Of(40, 12) {
		qubits := 1 + r.IntN(testkit.Of(20, 17))
		b := build(t, qubits, 0).scramble(r).random(r, 150)
		for range 3 { // turns and their diagonal gates
			b.scramble(r).basicQFT()
		}
		if hash(t, amplitudes(t, s, &b.Circuit)) != hash(t, amplitudes(t, host, &b.Circuit)) {
			t.Fatalf("circuit %d of %d qubits: the bits of the state differ from the host device", i, qubits)
		}
		batch := Batch{Circuit: &b.read().Circuit, Shots: 100, Seed: 5, Expect: []string{strings.Repeat("Z", qubits)}}
		if got, want := rows(t, s, batch), rows(t, host, batch); !reflect.DeepEqual(got, want) {
			t.Fatalf("circuit %d of %d qubits: the shots differ from the host device", i, qubits)
		}
	}
}

func hash(t *testing.T, all []complex64) [sha256.Size]byte {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, all)
	testkit.NoError(t, "Append", err)
	return sha256.Sum256(b)
}
