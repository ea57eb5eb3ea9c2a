package quantum

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// rows runs a batch and returns all results.
func rows(t testing.TB, s *Simulator, b Batch) (all []*Row) {
	t.Helper()
	testkit.NoError(t, "RunBatch", s.RunBatch(t.Context(), b, func(row int, r *Row) error {
		if row != len(all) {
			t.Fatalf("row %d comes behind %d rows", row, len(all))
		}
		all = append(all, r)
		return nil
	}))
	return all
}

// variational is a circuit whose angles are inputs and products of inputs.
func variational(t testing.TB, qubits int, r *rand.Rand) *builder {
	b := build(t, qubits, qubits)
	b.Inputs = []string{"a", "b", "c"}
	for range 3 {
		for q := range qubits {
			in := circuit.Input(r.IntN(3))
			twice := circuit.Combine(func(x, y float64) float64 { return x * y }, in, circuit.Number(2))
			switch r.IntN(5) {
			case 0:
				b.symbolic("ry", []circuit.Angle{in}, q)
			case 1:
				b.symbolic("rz", []circuit.Angle{twice}, q)
			case 2:
				b.symbolic("p", []circuit.Angle{in}, q)
			case 3:
				b.symbolic("u3", []circuit.Angle{twice, circuit.Number(0.3), in.Neg()}, q)
			default:
				b.gate("h", nil, q).symbolic("rx", []circuit.Angle{in}, q)
			}
			if qubits > 1 {
				other := (q + 1 + r.IntN(qubits-1)) % qubits
				b.gate("cx", nil, q, other).symbolic("crz", []circuit.Angle{twice}, other, q)
			}
		}
	}
	return b
}

// TestBatch: rows of a batch have the states of the obvious simulator, whatever the other rows are
// and however the batch is cut. Samples of a row depend on its number.
func TestBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	whole, cut := open(t, Options{}), open(t, Options{BatchBytes: 3 * 4096 * 8})
	for _, n := range []int{1, 4, 9, 10, 11, 12, 13} {
		b := variational(t, n, r)
		for q := range n {
			b.measure(q, q)
		}
		inputs := make([][]float64, 1+r.IntN(40))
		for i := range inputs {
			inputs[i] = []float64{r.Float64() * 3, r.Float64() * 3, 0}
		}
		batch := Batch{
			Circuit: &b.Circuit, Inputs: inputs, Shots: 20, Seed: 9, Amplitudes: true,
			Expect: []string{fmt.Sprintf("%0*d", n, 0)},
		}
		text := []byte(batch.Expect[0])
		for k := range text {
			text[k] = "IXYZ"[r.IntN(4)]
		}
		batch.Expect[0] = string(text)
		all := rows(t, whole, batch)
		if again := rows(t, cut, batch); !reflect.DeepEqual(all, again) {
			t.Fatalf("%d qubits: a batch that is cut differs", n)
		}
		bare := b.Circuit
		bare.Ops = bare.Ops[:len(bare.Ops)-n]
		for i, row := range all {
			want, _, err := circuittest.Run(&bare, inputs[i], nil)
			testkit.NoError(t, "reference", err)
			if d := distance(row.Amplitudes, want); !(d < 1e-5) {
				t.Fatalf("%d qubits, row %d: the distance is %g", n, i, d)
			}
			w := plainExpect(want, batch.Expect[0])
			if math.Abs(w-row.Values[0]) > 1e-5 || math.Abs(row.Norm-1) > 1e-5 {
				t.Fatalf("%d qubits, row %d: %v and norm %v, want %v and 1", n, i, row.Values[0], row.Norm, w)
			}
			for _, reading := range row.Samples {
				if p := row.Probabilities()[reading]; p == 0 {
					t.Fatalf("%d qubits, row %d: %d was read, which has no weight", n, i, reading)
				}
			}
		}
		batch.Inputs = inputs[:1]
		if alone := rows(t, whole, batch); !reflect.DeepEqual(alone[0], all[0]) {
			t.Fatalf("%d qubits: a row alone differs", n)
		}
	}
}

// TestPreparedBatch: a batch begins with each encoding.
func TestPreparedBatch(t *testing.T) {
	s := open(t, Options{})
	for _, n := range []int{3, 13} {
		b := build(t, n, 0).gate("cx", nil, 0, 2)
		for _, how := range []Encoding{Amplitude, Angle, Basis} {
			from := []float32{1, 0, 1}
			row := rows(t, s, Batch{Circuit: &b.Circuit, Prepare: from, How: how, Amplitudes: true})[0]
			st, err := s.PrepareState(t.Context(), append(from, make([]float32, map[Encoding]int{
				Amplitude: 1<<n - 3, Angle: n - 3, Basis: n - 3,
			}[how])...), how)
			testkit.NoError(t, "PrepareState", err)
			testkit.NoError(t, "Run", s.Run(t.Context(), st, &b.Circuit))
			want, err := s.Amplitudes(t.Context(), st)
			testkit.NoError(t, "Amplitudes", err)
			if !slices.Equal(row.Amplitudes, want) {
				t.Errorf("encoding %d, %d qubits: %.8v, want %.8v", how, n, row.Amplitudes, want)
			}
			testkit.NoError(t, "Close", st.Close())
		}
	}
}

// TestBatchRefuses: requests that do not fit the circuit, and an error of the caller.
func TestBatchRefuses(t *testing.T) {
	s := open(t, Options{MaxQubits: 26})
	plain, read := build(t, 2, 1).gate("h", nil, 0), build(t, 2, 1).measure(0, 0)
	middle := build(t, 2, 1).measure(0, 0).gate("x", nil, 0)
	input := build(t, 1, 0)
	input.Inputs = []string{"a"}
	input.symbolic("rx", []circuit.Angle{circuit.Input(0)}, 0)
	large := build(t, 34, 0)
	for name, c := range map[string]struct {
		b    Batch
		want error
	}{
		"no measurement":    {Batch{Circuit: &plain.Circuit, Shots: 1}, ErrInvalid},
		"negative shots":    {Batch{Circuit: &read.Circuit, Shots: -1}, ErrInvalid},
		"no state":          {Batch{Circuit: &middle.Circuit, Shots: 1, Amplitudes: true}, ErrInvalid},
		"no shots":          {Batch{Circuit: &middle.Circuit}, ErrInvalid},
		"no inputs":         {Batch{Circuit: &input.Circuit}, ErrInvalid},
		"an infinite one":   {Batch{Circuit: &input.Circuit, Inputs: [][]float64{{math.Inf(1)}}}, ErrInvalid},
		"prepared":          {Batch{Circuit: &plain.Circuit, Prepare: make([]float32, 3), How: Basis}, ErrInvalid},
		"no norm":           {Batch{Circuit: &plain.Circuit, Prepare: make([]float32, 3), How: Amplitude}, ErrInvalid},
		"a Pauli string":    {Batch{Circuit: &plain.Circuit, Expect: []string{"ZZZ"}}, ErrInvalid},
		"a large state":     {Batch{Circuit: &large.Circuit, Amplitudes: true}, ErrInvalid},
		"no room":           {Batch{Circuit: &large.Circuit}, ErrRoom},
		"a wrong circuit":   {Batch{Circuit: &circuit.Circuit{}}, circuit.ErrInvalid},
		"an angle in a row": {Batch{Circuit: &inverse(t).Circuit, Inputs: [][]float64{{0}}}, circuit.ErrInvalid},
	} {
		if err := s.RunBatch(t.Context(), c.b, func(int, *Row) error { return nil }); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop := errors.New("stop")
	err := s.RunBatch(t.Context(), Batch{Circuit: &plain.Circuit}, func(int, *Row) error { return stop })
	if !errors.Is(err, stop) {
		t.Errorf("%v, want the error of the caller", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.RunBatch(ctx, Batch{Circuit: &plain.Circuit}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want the end of the context", err)
	}
	testkit.NoError(t, "Close", s.Close())
	if err := s.RunBatch(t.Context(), Batch{Circuit: &plain.Circuit}, nil); err == nil {
		t.Error("a closed simulator runs")
	}
}

// inverse has the angle 1/a.
func inverse(t testing.TB) *builder {
	b := build(t, 1, 0)
	b.Inputs = []string{"a"}
	return b.symbolic("rx", []circuit.Angle{
		circuit.Combine(func(x, y float64) float64 { return x / y }, circuit.Number(1), circuit.Input(0)),
	}, 0)
}

// chi returns how far counts are from probabilities, in standard deviations of chi-square.
func chi(counts map[uint64]int, p func(reading uint64) float64, readings, shots int) float64 {
	sum, free := 0.0, -1.0
	for i := range uint64(readings) {
		if want := p(i) * float64(shots); want > 0 {
			sum += (float64(counts[i]) - want) * (float64(counts[i]) - want) / want
			free++
		} else if counts[i] > 0 {
			return math.Inf(1)
		}
	}
	if free == 0 {
		return 0
	}
	return (sum - free) / math.Sqrt(2*free)
}

// TestShots: counts of random states are as their probabilities, also of registers with several
// groups.
func TestShots(t *testing.T) {
	s, r := open(t, Options{}), rand.New(rand.NewPCG(11, 12))
	const shots = 20_000
	for _, n := range []int{1, 3, 6, 20} {
		b := build(t, n, 5)
		for q := range min(n, 5) { // the other qubits of the largest one are scrambled, and not read
			b.measure(q*(n/min(n, 5)), q)
		}
		reads := b.Ops
		b.Ops = nil
		b.scramble(r).random(r, 40)
		want, _, err := circuittest.Run(&b.Circuit, nil, nil)
		testkit.NoError(t, "reference", err)
		b.Ops = append(b.Ops, reads...)
		st := zeros(t, s, n)
		testkit.NoError(t, "Run", s.Run(t.Context(), st, &b.Circuit))
		counts, err := s.Measure(t.Context(), st, shots, 13)
		testkit.NoError(t, "Measure", err)
		p := make([]float64, 32)
		for i, a := range want {
			reading := 0
			for _, op := range reads {
				reading |= i >> op.Target & 1 << op.Bit
			}
			p[reading] += real(a)*real(a) + imag(a)*imag(a)
		}
		off := chi(counts.Of, func(i uint64) float64 { return p[i] }, 32, shots)
		if math.Abs(off) > 5 || counts.Bits != 5 {
			t.Errorf("%d qubits: the counts are %.1f standard deviations off", n, off)
		}
		other, err := s.Measure(t.Context(), st, shots, 14)
		testkit.NoError(t, "Measure", err)
		if n > 1 && reflect.DeepEqual(counts, other) {
			t.Error("another seed has the same counts")
		}
	}
}

// TestTrajectories: circuits that measure before their end, with conditions and resets, have the
// probabilities of the obvious simulator, in one launch for all shots or one by one.
func TestTrajectories(t *testing.T) {
	const shots = 6000
	for _, n := range []int{2, 5, 13} {
		s := open(t, Options{BatchBytes: 1 << 22})
		b := build(t, n, 3)
		b.gate("ry", []float64{1.1}, 0).measure(0, 0).gate("x", nil, 1).when(0, 1, 1)
		b.gate("ry", []float64{0.8}, 1).gate("cx", nil, 1, 0).when(0, 1, 0)
		b.Ops = append(b.Ops, circuit.Op{Kind: circuit.Reset, Target: 0})
		b.gate("rx", []float64{0.5}, 0).measure(1, 1).when(0, 1, 1).gate("h", nil, 0).when(1, 1, 1)
		b.Ops = append(b.Ops, circuit.Op{Kind: circuit.Swap, Target: 0, Other: 1, If: circuit.Condition{Count: 1}})
		b.measure(0, 2)
		few := shots
		if n > 12 {
			few = 1000
		}
		want, mean := map[uint64]float64{}, 0.0
		r := rand.New(rand.NewPCG(15, 16))
		const trials = 20_000
		small := b.Circuit
		small.Qubits = 2
		for range trials {
			state, bits, err := circuittest.Run(&small, nil, r.Float64)
			testkit.NoError(t, "reference", err)
			want[bits] += 1.0 / trials
			mean += plainExpect(state, "ZI") / trials
		}
		row := rows(t, s, Batch{
			Circuit: &b.Circuit, Shots: few, Seed: 17, Expect: []string{strings.Repeat("I", n-2) + "ZI"},
		})[0]
		counts := CountsOf(row.Samples, 3)
		if off := chi(counts.Of, func(i uint64) float64 { return want[i] }, 8, few); math.Abs(off) > 6 {
			t.Errorf("%d qubits: the counts %v are %.1f standard deviations off %v", n, counts.Of, off, want)
		}
		if math.Abs(row.Norm-1) > 1e-5 || math.Abs(row.Values[0]-mean) > 0.1 {
			t.Errorf("%d qubits: the norm is %v and Z %v, want 1 and %v", n, row.Norm, row.Values[0], mean)
		}
	}
}
