package codegen_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr/cost"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/codegen"
	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// sources returns the texts of the only part of a graph that applies operations to an input of a name.
// Nodes begin with a number of nodes that no output needs.
func sources(t *testing.T, name string, skip int, rows int64, ops ...ir.Op) map[string]string {
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
	l, err := plan.New(g, cost.Default, []int64{1, rows}, false, plan.MaxInside)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Parts) != 1 {
		t.Fatalf("%d parts, want 1", len(l.Parts))
	}
	return codegen.Sources(l, l.Parts[0])
}

// TestEqualTexts: the text does not depend on names, on other nodes or on the length, so that one
// kernel is compiled for all such programs. Other operations have another text.
func TestEqualTexts(t *testing.T) {
	a := sources(t, "x", 0, 1<<20, ir.OpSqrt, ir.OpExp)
	if b := sources(t, "other", 3, 1<<24, ir.OpSqrt, ir.OpExp); !maps.Equal(a, b) {
		t.Errorf("two texts of one kernel:\n%s\n%s", a[""], b[""])
	}
	if b := sources(t, "x", 0, 1<<20, ir.OpExp, ir.OpSqrt); maps.Equal(a, b) {
		t.Error("one text of two kernels")
	}
	if len(a) != 1 || strings.Count(a[""], `extern "C" __global__`) != 1 || strings.Count(a[""], "expr_kernel") != 1 {
		t.Errorf("want one kernel that has its name once:\n%s", a[""])
	}
}

// TestScanKernels: a scan has its four kernels.
func TestScanKernels(t *testing.T) {
	all := sources(t, "x", 0, 1<<20, ir.OpScan)
	want := []string{codegen.ScanApply, codegen.ScanDown, codegen.ScanTotals, codegen.ScanUp}
	if got := slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Fatalf("kernels %v, want %v", got, want)
	}
	for ending, text := range all {
		if strings.Count(text, "expr_kernel"+ending+"(") != 1 {
			t.Errorf("the text of %s does not have the kernel:\n%s", ending, text)
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
