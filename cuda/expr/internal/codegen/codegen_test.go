package codegen_test

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr/internal/codegen"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// source returns the text of the only part of a graph that applies operations to an input of a
// name. Nodes begin with a number of nodes that no output needs.
func source(t *testing.T, shared int, name string, skip int, rows int64, ops ...ir.Op) (string, plan.Shape) {
	t.Helper()
	g := &ir.Graph{Symbols: []ir.Symbol{{Fixed: 1}, {Name: "n", Fixed: -1}}}
	add := func(o ir.Op, args ...*ir.Node) *ir.Node {
		n := &ir.Node{ID: len(g.Nodes), Op: o, Type: ir.F32, Lead: ir.FreeLength, Width: 1, Args: args}
		g.Nodes = append(g.Nodes, n)
		return n
	}
	for range skip {
		add(ir.OpConst)
	}
	n := add(ir.OpInput)
	g.Inputs = []ir.Input{{Name: name, Node: n}}
	for _, o := range ops {
		n = add(o, n)
	}
	g.Outputs = []ir.Output{{Name: "y", Node: n}}
	l, err := plan.New(g, plan.Default, []int64{1, rows}, false, plan.MaxInside)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Parts) != 1 {
		t.Fatalf("%d parts, want 1", len(l.Parts))
	}
	return codegen.Source(l, l.Parts[0], shared)
}

// TestEqualTexts: the text does not depend on names, on other nodes or on the length, so that one
// kernel is compiled for all such programs. Other operations have another text.
func TestEqualTexts(t *testing.T) {
	a, _ := source(t, 1<<17, "x", 0, 1<<20, ir.OpSqrt, ir.OpExp)
	if b, _ := source(t, 1<<17, "other", 3, 1<<24, ir.OpSqrt, ir.OpExp); a != b {
		t.Errorf("two texts of one kernel:\n%s\n%s", a, b)
	}
	if b, _ := source(t, 1<<17, "x", 0, 1<<20, ir.OpExp, ir.OpSqrt); a == b {
		t.Error("one text of two kernels")
	}
	if strings.Count(a, `extern "C" __global__`) != 1 || strings.Count(a, "expr_kernel") != 1 {
		t.Errorf("want one kernel that has its name once:\n%s", a)
	}
}

// TestScanShape: a scan keeps two tiles in shared memory, and none if a block may not have so much.
func TestScanShape(t *testing.T) {
	for shared, want := range map[int]int{227 << 10: 160 << 10, 160 << 10: 160 << 10, 99 << 10: 0, 0: 0} {
		text, shape := source(t, shared, "x", 0, 1<<20, ir.OpScan)
		if shape.Shared != want || shape.Tile != ir.ScanTile || shape.Threads != 32*ir.ScanWarps {
			t.Errorf("of %d bytes: %+v, want %d", shared, shape, want)
		}
		if strings.Contains(text, "X_DYNAMIC(x_stage)") != (want > 0) {
			t.Errorf("of %d bytes: the text has another shape than %+v", shared, shape)
		}
	}
}

// TestStates: each level above the tiles has a state for 32 of the level below.
func TestStates(t *testing.T) {
	for tiles, want := range map[int64]int64{1: 1, 2: 3, 32: 33, 33: 36, 1024: 1024 + 32 + 1, 1025: 1025 + 33 + 2 + 1} {
		if got := codegen.States(tiles); got != want {
			t.Errorf("%d tiles: %d states, want %d", tiles, got, want)
		}
	}
}

// TestRowsPerBlock: a block of 8 warps has 8 rows or more, or one if a row has more than a tile.
func TestRowsPerBlock(t *testing.T) {
	for width, want := range map[int64]int64{1: 256, 4: 256, 5: 128, 64: 16, 65: 8, 1024: 8, 1025: 1, 16384: 1} {
		if got := codegen.RowsPerBlock(width); got != want {
			t.Errorf("rows of %d elements: %d for a block, want %d", width, got, want)
		}
	}
}
