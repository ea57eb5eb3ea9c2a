package cells

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func drawn(next func() float32, H, I, C int) GRUWeights {
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = next()
		}
		return v
	}
	return GRUWeights{
		InputHidden: draw(3 * H * I), HiddenHidden: draw(3 * H * H), InputBias: draw(3 * H),
		HiddenBias: draw(3 * H), Readout: draw(C * H), ReadoutBias: draw(C),
	}
}

func int16s(words []uint32) []int16 { return device.Of[int16](device.Bytes(words)) }

func int32s(words []uint32) []int32 { return device.Of[int32](device.Bytes(words)) }

// TestTable: weights stand where the kernels read them, padding is zeros, and what does not fit is
// refused.
func TestTable(t *testing.T) {
	const H, I, C, P = 3, 2, 4, 8
	a, err := Address("gru", map[string]float64{"hidden": H}, 8, I, C, Voting{})
	if err != nil {
		t.Fatalf("Address: %v, want no error", err)
	}
	next := float32(0)
	w := drawn(func() float32 { next++; return next }, H, I, C)
	table, err := a.Table(w)
	if err != nil || len(table) != kernels.AgentGRUTable(P) {
		t.Fatalf("%d words: %v", len(table), err)
	}
	// The largest weight of the inputs of n is 18, which counts eightfold and twice: 288 by 2^6 is
	// below 32000. The largest of the readout is 75.
	const gates, readout = 64, 128
	numbers := func(by float32, v ...float32) []int16 {
		to := make([]int16, P)
		for i, x := range v {
			to[i] = int16(by * x)
		}
		return to
	}
	weights, votes := int16s(table[kernels.AgentTableWeights(P):]), int16s(table[kernels.AgentTableReadout(P):])
	for _, c := range []struct {
		name       string
		have, want []int16
	}{
		{"units of r", weights, numbers(gates, w.HiddenHidden[:H]...)},
		{"inputs of r", weights[P:], numbers(8*gates, w.InputHidden[:I]...)},
		{"units of z", weights[(P+2)*2*P:], numbers(gates, w.HiddenHidden[5*H:6*H]...)},
		{"inputs of n", weights[2*P*2*P+P:], numbers(16*gates, w.InputHidden[6*I:7*I]...)},
		{"units of n", weights[2*P*2*P:], numbers(2*gates, w.HiddenHidden[6*H:7*H]...)},
		{"padding", weights[3*2*P:], numbers(0)},
		{"readout", votes[P:], numbers(readout, w.Readout[H:2*H]...)},
		{"no candidate", votes[C*P:], numbers(0)},
	} {
		if !slices.Equal(c.have[:P], c.want) {
			t.Errorf("%s: %v, want %v", c.name, c.have[:P], c.want)
		}
	}
	bias := int32s(table[kernels.AgentTableBias:])[4:8]
	if want := []int32{
		64 * gates * int32(w.InputBias[1]+w.HiddenBias[1]),
		64 * gates * int32(w.InputBias[4]+w.HiddenBias[4]), 128 * gates * int32(w.InputBias[7]),
		128 * gates * int32(w.HiddenBias[7]),
	}; !slices.Equal(bias, want) {
		t.Errorf("biases %v, want %v", bias, want)
	}
	have := int32s(table[kernels.AgentTableReadoutBias(P):])[C-1:][:2]
	if have[0] != 64*readout*int32(w.ReadoutBias[C-1]) || have[1] != kernels.AgentNoCandidate {
		t.Errorf("biases of the readout %v", have)
	}
	for _, bad := range []float32{129, float32(math.NaN()), float32(math.Inf(-1))} {
		w.Readout[5] = bad
		if _, err := a.Table(w); !errors.Is(err, ErrParameter) || !strings.Contains(err.Error(), "Readout[5]") {
			t.Errorf("a weight of %v: %v", bad, err)
		}
	}
	w.Readout = w.Readout[1:]
	if _, err := a.Table(w); !errors.Is(err, ErrParameter) ||
		!strings.Contains(err.Error(), "Readout has 11 values, want 12") {
		t.Errorf("too few weights: %v", err)
	}
}

// TestTableScales: whatever the weights and the biases are, numbers are in the range in which no
// sum overflows, and as large as that allows.
func TestTableScales(t *testing.T) {
	r := rand.New(rand.NewPCG(91, 92))
	for range 300 {
		H, I, C := 1+r.IntN(32), 1, 2+r.IntN(15)
		a, err := Address("gru", map[string]float64{"hidden": float64(H)}, 8, I, C, Voting{})
		if err != nil {
			t.Fatalf("Address: %v, want no error", err)
		}
		most, mostBias := math.Ldexp(128, -r.IntN(40)), math.Ldexp(128, -r.IntN(40))
		w := drawn(func() float32 { return float32((2*r.Float64() - 1) * most) }, H, I, C)
		for _, b := range [][]float32{w.InputBias, w.HiddenBias, w.ReadoutBias} {
			for i := range b {
				b[i] = float32((2*r.Float64() - 1) * mostBias)
			}
		}
		table, err := a.Table(w)
		if err != nil {
			t.Fatalf("a.Table: %v, want no error", err)
		}
		P := a.class()
		within := func(name string, numbers []int16, weight int, biases []int32, bias int) {
			largest, largestBias := 0, 0
			for _, v := range numbers {
				largest = max(largest, int(v), -int(v))
			}
			for _, v := range biases {
				largestBias = max(largestBias, int(v), -int(v))
			}
			if largest > weight || largestBias > bias {
				t.Fatalf("%s: weights up to %d and biases up to %d, want %d and %d", name, largest, largestBias, weight,
					bias)
			}
			if most > 0.5 && largest < weight/2-1 && largestBias < bias/2-1 {
				t.Fatalf("%s: weights up to %d and biases up to %d: bits are left unused", name, largest, largestBias)
			}
		}
		within("gates", int16s(table[kernels.AgentTableWeights(P):kernels.AgentTableReadout(P)]),
			kernels.AgentGateWeight,
			int32s(table[kernels.AgentTableBias:])[:4*P], kernels.AgentGateBias)
		within("readout", int16s(table[kernels.AgentTableReadout(P):]), kernels.AgentVoteWeight,
			int32s(table[kernels.AgentTableReadoutBias(P):])[:C], kernels.AgentVoteBias)
	}
}

// TestAddressedWeights: the seed decides random weights.
func TestAddressedWeights(t *testing.T) {
	a, err := Address("gru", nil, 8, 8, 5, Voting{})
	if err != nil {
		t.Fatalf("Address: %v, want no error", err)
	}
	one, other := a.Weights(1), a.Weights(2)
	if slices.Equal(one, other) || !slices.Equal(one, a.Weights(1)) || len(one) != kernels.AgentGRUTable(8) {
		t.Error("the seed does not choose the weights")
	}
}
