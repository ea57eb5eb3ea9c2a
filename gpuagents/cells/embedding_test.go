package cells

import (
	"errors"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// TestEmbedding: embeddings are float variables of agents, in the order in which the cell names
// them.
func TestEmbedding(t *testing.T) {
	custom := func(names ...string) *Cell {
		c, err := Custom(map[string]string{"w": "f32[3]", "n": "u8", "b": "bf16", "round": "u64"}, nil,
			kernels.StepSignature+" { return {0}; }", []string{"a", "b"}, names...)
		if err != nil {
			t.Fatalf("Custom: %v, want no error", err)
		}
		return c
	}
	none, err := Custom(map[string]string{"n": "u8"}, nil, kernels.StepSignature+" { return {0}; }", []string{"a", "b"})
	if err != nil {
		t.Fatalf("Custom: %v, want no error", err)
	}
	for name, c := range map[string]struct {
		cell  *Cell
		want  []string
		width int
	}{
		"predictor": {predictor, []string{"hidden"}, kernels.PredictorHidden},
		"gru":       {gru, []string{"hidden"}, 8},
		"leaky":     {leaky, []string{"potential", "usual"}, 2},
		"lif":       {lif, []string{"potential", "adaptation", "trace", "usual"}, 4},
		"region":    {region, []string{"mean"}, kernels.RegionPicks},
		"all":       {custom(), []string{"b", "w"}, 4},
		"named":     {custom("w", "b"), []string{"w", "b"}, 4},
		"one":       {custom("b"), []string{"b"}, 1},
		"none":      {none, nil, 0},
	} {
		b, err := c.cell.Bind(nil, 7, 2, Weighted)
		if err != nil {
			t.Fatalf("cell.Bind: %v, want no error", err)
		}
		l, err := b.Layout(64 << 10)
		if err != nil {
			t.Fatalf("b.Layout: %v, want no error", err)
		}
		vars, width := b.Embedding()
		var names []string
		for _, v := range vars {
			if of := l.Vars[v]; of.Group || of.Elem != kernels.F32 && of.Elem != kernels.BF16 {
				t.Errorf("%s: %+v, want a float variable of agents", name, of)
			}
			names = append(names, l.Vars[v].Name)
		}
		if !slices.Equal(names, c.want) || width != c.width {
			t.Errorf("%s: %q, %d values, want %q and %d", name, names, width, c.want, c.width)
		}
	}
	for _, bad := range [][]string{{"n"}, {"x"}, {"w", "w"}, {"level"}} {
		if _, err := Custom(map[string]string{"w": "f32", "n": "u8"}, nil, kernels.StepSignature+" { return {0}; }",
			[]string{"a", "b"}, bad...); !errors.Is(err, ErrEmbedding) {
			t.Errorf("%q: Custom: %v, want %v", bad, err, ErrEmbedding)
		}
	}
}
