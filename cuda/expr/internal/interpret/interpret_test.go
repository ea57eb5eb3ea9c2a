package interpret_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/interpret"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// symbols are the symbols of all graphs of these tests. The third one is the length of a filter.
var symbols = []ir.Symbol{{Fixed: 1}, {Name: "n", Fixed: -1}, {Name: "filter", Fixed: -1}}

func input() *ir.Node { return &ir.Node{Op: ir.OpInput, Type: ir.F32, Lead: ir.FreeLength, Width: 1} }

// graph runs a graph. The last node is the output. The first node may be the input x.
func graph(t *testing.T, lengths []int64, x []float32, nodes ...*ir.Node) [][]byte {
	t.Helper()
	last := nodes[len(nodes)-1]
	g := &ir.Graph{Nodes: nodes, Symbols: slices.Clone(symbols), Outputs: []ir.Output{{Name: "y", Node: last}}}
	if last.Op == ir.OpCompact {
		g.Symbols[2].Of = last.Args[1]
	}
	var inputs [][]byte
	if nodes[0].Op == ir.OpInput {
		g.Inputs = []ir.Input{{Name: "x", Node: nodes[0]}}
		inputs = [][]byte{device.Bytes(x)}
	}
	out, err := interpret.Run(t.Context(), g, lengths, inputs)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func run(t *testing.T, o ir.Op, x []float32) []float32 {
	t.Helper()
	in := input()
	n := &ir.Node{ID: 1, Op: o, Type: ir.F32, Lead: ir.FreeLength, Width: 1, Args: []*ir.Node{in}}
	return device.Of[float32](graph(t, []int64{1, int64(len(x)), 0}, x, in, n)[0])
}

func reduce(t *testing.T, f ir.Fold, x []float32) float32 {
	t.Helper()
	in := input()
	n := &ir.Node{ID: 1, Op: ir.OpReduce, Type: ir.F32, Width: 1, Args: []*ir.Node{in}, Imm: uint64(f)}
	return device.Of[float32](graph(t, []int64{1, int64(len(x)), 0}, x, in, n)[0])[0]
}

// TestFunctions holds exp, log and tanh to their errors against float64.
func TestFunctions(t *testing.T) {
	for _, c := range []struct {
		op        ir.Op
		fn        func(float64) float64
		low, high float64
		ulps      float64
	}{
		{ir.OpExp, math.Exp, -87, 88.7, 2},
		{ir.OpLog, math.Log, 1e-37, 1e5, 2},
		{ir.OpTanh, math.Tanh, -10, 10, 3},
		{ir.OpSqrt, math.Sqrt, 0, 1e30, 0.5},
	} {
		x := make([]float32, 1<<16)
		for i := range x {
			x[i] = float32(c.low + (c.high-c.low)*float64(i)/float64(len(x)))
			if i%2 == 1 { // also small ones
				x[i] = float32(math.Copysign(math.Exp(-float64(i)/800), c.low))
			}
			if c.low >= 0 {
				x[i] = float32(math.Abs(float64(x[i])))
			}
		}
		out := run(t, c.op, x)
		worst := 0.0
		for i, got := range out {
			want := c.fn(float64(x[i]))
			size := float32(math.Abs(want))
			ulp := float64(math.Nextafter32(size, float32(math.Inf(1)))) - float64(size)
			worst = max(worst, math.Abs(float64(got)-want)/ulp)
		}
		if t.Logf("%s: %.2f units", c.op, worst); worst > c.ulps+0.01 || worst < 0.2 {
			t.Errorf("%s is off by %.2f units, want at most %v", c.op, worst, c.ulps)
		}
	}
}

// TestPhilox: the words of the generator's authors (kat_vectors of Random123), as far as a counter
// of a row can name them.
func TestPhilox(t *testing.T) {
	n := &ir.Node{Op: ir.OpRandom, Type: ir.U32, Lead: ir.FreeLength, Width: 1}
	out := device.Of[uint32](graph(t, []int64{1, 1}, nil, n)[0])
	if len(out) != 1 || out[0] != 0x6627e8d5 {
		t.Errorf("the first word is %#x, want 0x6627e8d5", out)
	}
}

// TestFoldOrder: a sum of floats has the order of ir.TileSize, also when several goroutines add.
func TestFoldOrder(t *testing.T) {
	x := make([]float32, 2*ir.SuperSize+1500)
	for i := range x {
		x[i] = float32(math.Sin(float64(i))) * float32(math.Exp(float64(i%40)))
	}
	// sum adds the values of a tree whose halves are apart by half of their number.
	sum := func(v []float32) float32 {
		for d := len(v) / 2; d > 0; d /= 2 {
			for i := range d {
				v[i] += v[i+d]
			}
		}
		return v[0]
	}
	at := func(i int) float32 {
		if i < len(x) {
			return x[i]
		}
		return 0
	}
	var supers [3]float32
	for s := range supers {
		tiles := make([]float32, ir.SuperTiles)
		for j := range tiles {
			lanes := make([]float32, 32)
			for l := range lanes {
				var four [4]float32
				for k := range four {
					for r := range 8 {
						four[k] += at(s*ir.SuperSize + j*ir.TileSize + 128*r + 4*l + k)
					}
				}
				lanes[l] = (four[0] + four[1]) + (four[2] + four[3])
			}
			tiles[j] = sum(lanes)
		}
		supers[s] = sum(tiles)
	}
	want := supers[0] + supers[1] + supers[2]
	// Three results are in one vector of the first lane: (0 1) (2 none).
	if got := reduce(t, ir.FoldSum, x); got != want {
		t.Errorf("the sum is %v, want %v", got, want)
	}
	slices.Reverse(x)
	if got := reduce(t, ir.FoldSum, x); got == want {
		t.Error("the sum does not depend on the order, so this test shows nothing")
	}
}

// TestEmptyFolds: the folds of no element.
func TestEmptyFolds(t *testing.T) {
	for f, want := range map[ir.Fold]float32{
		ir.FoldSum: 0, ir.FoldMin: float32(math.Inf(1)), ir.FoldMax: float32(math.Inf(-1)),
	} {
		if got := reduce(t, f, nil); math.Float32bits(got) != math.Float32bits(want) {
			t.Errorf("%v of no element is %v, want %v", f, got, want)
		}
	}
}

// TestFilterLength: Run sets the length of what is filtered, and only that.
func TestFilterLength(t *testing.T) {
	in := input()
	keep := &ir.Node{ID: 1, Op: ir.OpCast, Type: ir.Bool, Lead: ir.FreeLength, Width: 1, Args: []*ir.Node{in}}
	kept := &ir.Node{ID: 2, Op: ir.OpCompact, Type: ir.F32, Lead: 2, Width: 1, Args: []*ir.Node{in, keep}}
	lengths := []int64{1, 4, 0}
	out := graph(t, lengths, []float32{1, 0, 3, 0}, in, keep, kept)
	if got := device.Of[float32](out[0]); !slices.Equal(got, []float32{1, 3}) {
		t.Errorf("kept %v, want 1 and 3", got)
	}
	if !slices.Equal(lengths, []int64{1, 4, 2}) {
		t.Errorf("the lengths are %v, want 1, 4 and 2", lengths)
	}
}

// TestCancel: a run ends with the cause of its context.
func TestCancel(t *testing.T) {
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	in := input()
	g := &ir.Graph{
		Nodes: []*ir.Node{in}, Symbols: symbols, Inputs: []ir.Input{{Name: "x", Node: in}},
		Outputs: []ir.Output{{Name: "y", Node: in}},
	}
	if _, err := interpret.Run(ctx, g, []int64{1, 1, 0}, [][]byte{make([]byte, 4)}); !errors.Is(err, cause) {
		t.Errorf("%v, want the cause of the context", err)
	}
}
