package cells

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

func TestAddressRefuses(t *testing.T) {
	for _, c := range []struct {
		cell                         string
		values                       map[string]float64
		agents, features, candidates int
		want                         string
	}{
		{"predictor", nil, 8, 1, 2, "cannot be addressed"},
		{"gru", map[string]float64{"hiden": 8}, 8, 1, 2, `did you mean "hidden"?`},
		{"gru", map[string]float64{"hidden": 33}, 8, 1, 2, "hidden = 33, want 1 to 32"},
		{"gru", map[string]float64{"hidden": 9}, 8, 17, 2, "17 features, want 1 to 16"},
		{"gru", nil, 8, 1, 17, "17 candidates, want 2 to 16"},
		{"gru", nil, 0, 1, 2, "0 agents a group"},
		{"leaky", nil, 8, 3, 2, "3 features, want 1 to 2"},
		{"leaky", nil, 8, 1, 3, "3 candidates, want 2"},
		{"leaky", map[string]float64{"decay": 1}, 8, 1, 2, "decay = 1, want 0 to 0.9999"},
	} {
		_, err := Address(c.cell, c.values, c.agents, c.features, c.candidates, Voting{})
		if !errors.Is(err, ErrParameter) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c, err, c.want)
		}
	}
}

// TestTable: weights stand where the kernels read them, padding is zeros, and what does not fit is refused.
func TestTable(t *testing.T) {
	const H, I, C, P = 3, 2, 4, 8
	a, err := Address("gru", map[string]float64{"hidden": H}, 8, I, C, Voting{})
	if err != nil {
		t.Fatal(err)
	}
	next := float32(0)
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			next++
			v[i] = next
		}
		return v
	}
	w := GRUWeights{InputHidden: draw(3 * H * I), HiddenHidden: draw(3 * H * H), InputBias: draw(3 * H), HiddenBias: draw(3 * H), Readout: draw(C * H), ReadoutBias: draw(C)}
	table, err := a.Table(w)
	if err != nil || len(table) != kernels.AgentGRUWeights(P, C) {
		t.Fatalf("%d weights: %v", len(table), err)
	}
	z := func(n int) []float32 { return make([]float32, n) }
	for _, c := range []struct {
		at   int
		want []float32
	}{
		{0, slices.Concat(w.InputHidden[:I], z(P-I), w.HiddenHidden[:H], z(P-H))},
		{(P + 2) * 2 * P, slices.Concat(w.InputHidden[5*I:6*I], z(P-I), w.HiddenHidden[5*H:6*H], z(P-H))},
		{3 * 2 * P, z((P - 3) * 2 * P)},
		{2 * P * 2 * P, []float32{2 * w.InputHidden[6*I], 2 * w.InputHidden[6*I+1]}},
		{6*P*P + 4, []float32{w.InputBias[1] + w.HiddenBias[1], w.InputBias[4] + w.HiddenBias[4], 2 * w.InputBias[7], 2 * w.HiddenBias[7]}},
		{6*P*P + 4*P + P, slices.Concat(w.Readout[H:2*H], z(P-H))},
		{6*P*P + 4*P + C*P, w.ReadoutBias},
	} {
		if !slices.Equal(table[c.at:][:len(c.want)], c.want) {
			t.Errorf("at %d: %v, want %v", c.at, table[c.at:][:len(c.want)], c.want)
		}
	}
	for _, bad := range []float32{129, float32(math.NaN()), float32(math.Inf(-1))} {
		w.Readout[5] = bad
		if _, err := a.Table(w); !errors.Is(err, ErrParameter) || !strings.Contains(err.Error(), "Readout[5]") {
			t.Errorf("a weight of %v: %v", bad, err)
		}
	}
	w.Readout = w.Readout[1:]
	if _, err := a.Table(w); !errors.Is(err, ErrParameter) || !strings.Contains(err.Error(), "Readout has 11 values, want 12") {
		t.Errorf("too few weights: %v", err)
	}
}

// TestAddressedWeights: random weights are those of the seed, small, and zeros where a class pads.
func TestAddressedWeights(t *testing.T) {
	a, err := Address("gru", nil, 8, 8, 5, Voting{})
	if err != nil {
		t.Fatal(err)
	}
	one, other := a.Weights(1), a.Weights(2)
	if slices.Equal(one, other) || !slices.Equal(one, a.Weights(1)) || len(one) != kernels.AgentGRUWeights(8, 5) {
		t.Error("the seed does not choose the weights")
	}
	for i, v := range one {
		if math.Abs(float64(v)) > 2/math.Sqrt(8) || v == 0 {
			t.Errorf("weight %d is %v", i, v)
		}
	}
}
