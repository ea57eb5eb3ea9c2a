package plan_test

import (
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr/internal/plan"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

func vector(g *ir.Graph, o ir.Op, args ...*ir.Node) *ir.Node {
	n := &ir.Node{ID: len(g.Nodes), Op: o, Type: ir.F32, Lead: ir.FreeLength, Width: 1, Args: args}
	if o == ir.OpInput {
		n.Imm = uint64(len(g.Inputs))
		g.Inputs = append(g.Inputs, ir.Input{Name: "x", Node: n})
	}
	if o == ir.OpReduce {
		n.Lead = 0
	}
	g.Nodes = append(g.Nodes, n)
	return n
}

func graph() *ir.Graph {
	return &ir.Graph{Symbols: []ir.Symbol{{Fixed: 1}, {Name: "n", Fixed: -1}}}
}

// TestFuse: sum(sqrt(x*x)) is one kernel that reads x, and three if it is not fused.
func TestFuse(t *testing.T) {
	g := graph()
	x := vector(g, ir.OpInput)
	sum := vector(g, ir.OpReduce, vector(g, ir.OpSqrt, vector(g, ir.OpMul, x, x)))
	g.Outputs = []ir.Output{{Name: "s", Node: sum}}
	for unfused, want := range map[bool]int{false: 1, true: 3} {
		l, err := plan.New(g, plan.Default, []int64{1, 1 << 24}, unfused, plan.MaxInside)
		if err != nil {
			t.Fatal(err)
		}
		if len(l.Parts) != want {
			t.Fatalf("unfused %v: %d kernels, want %d", unfused, len(l.Parts), want)
		}
		last := l.Parts[want-1]
		if last.Kind != plan.KindMap || len(last.Roots) != 1 || last.Roots[0] != sum || !l.Kept(sum) {
			t.Errorf("unfused %v: the last part is a %v of %v", unfused, last.Kind, last.Roots)
		}
		if !unfused && (len(last.Reads) != 1 || last.Reads[0] != x || len(last.Inside) != 3) {
			t.Errorf("the part reads %v and computes %v", last.Reads, last.Inside)
		}
	}
}

// TestOrder: a part comes after the parts that it reads, and no part has more operations than
// allowed.
func TestOrder(t *testing.T) {
	g := graph()
	n := vector(g, ir.OpInput)
	for range 20 {
		n = vector(g, ir.OpSqrt, n)
	}
	g.Outputs = []ir.Output{{Name: "y", Node: n}}
	l, err := plan.New(g, plan.Default, []int64{1, 1 << 24}, false, 6)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Parts) < 4 {
		t.Errorf("%d parts of 20 operations, with at most 6 in each", len(l.Parts))
	}
	done := map[*ir.Node]bool{}
	for _, p := range l.Parts {
		if len(p.Inside) > 6 {
			t.Errorf("a part has %d operations, want at most 6", len(p.Inside))
		}
		for _, r := range p.Reads {
			if r.Op != ir.OpInput && !done[r] {
				t.Errorf("%%%d is read before it is there", r.ID)
			}
		}
		for _, r := range p.Roots {
			done[r] = true
		}
	}
}

// TestTable: the table of gather is in memory, so that a separate kernel computes it.
func TestTable(t *testing.T) {
	g := graph()
	x := vector(g, ir.OpInput)
	table, index := vector(g, ir.OpSqrt, x), vector(g, ir.OpIota)
	index.Type = ir.U32
	gather := vector(g, ir.OpGather, table, index)
	g.Outputs = []ir.Output{{Name: "y", Node: gather}}
	l, err := plan.New(g, plan.Default, []int64{1, 1 << 10}, false, plan.MaxInside)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Parts) != 2 || !l.Parts[1].Gathers(table) || l.Parts[0].Gathers(x) {
		t.Errorf("%d parts, want the table and what gathers from it", len(l.Parts))
	}
	if len(l.Notes) == 0 || !strings.Contains(l.Notes[0], "the table of gather must be in memory") {
		t.Errorf("the notes are %q", l.Notes)
	}
}

// TestIndexTable: an index that is a table of gather is stored before it is read, although nothing
// computes it.
func TestIndexTable(t *testing.T) {
	g := graph()
	table, index := vector(g, ir.OpIota), vector(g, ir.OpInput)
	table.Type, index.Type = ir.U32, ir.U32
	g.Outputs = []ir.Output{{Name: "y", Node: vector(g, ir.OpGather, table, index)}}
	l, err := plan.New(g, plan.Default, []int64{1, 1 << 10}, false, plan.MaxInside)
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Parts) != 2 || l.Parts[0].Roots[0] != table || !l.Parts[1].Gathers(table) {
		t.Errorf("%d parts, want the table and what gathers from it", len(l.Parts))
	}
}

// TestLargeProduct: a product of more than 64 columns is the library's, also when its factors would
// not fit the shared memory of a kernel.
func TestLargeProduct(t *testing.T) {
	for _, width := range []int64{64, 65, 200} {
		g := graph()
		g.Symbols = append(g.Symbols, ir.Symbol{Name: "b", Fixed: width})
		a, b := vector(g, ir.OpInput), vector(g, ir.OpInput)
		product := vector(g, ir.OpMatMul, a, b)
		a.Width, b.Width, product.Width, b.Lead = width, width, width, 2
		g.Outputs = []ir.Output{{Name: "y", Node: product}}
		l, err := plan.New(g, plan.Default, []int64{1, 1 << 10, width}, false, plan.MaxInside)
		if err != nil {
			t.Fatalf("%d columns: %v", width, err)
		}
		want := plan.KindGemm
		if width <= 64 {
			want = plan.KindSmall
		}
		if l.Parts[0].Kind != want {
			t.Errorf("%d columns: a %v, want a %v", width, l.Parts[0].Kind, want)
		}
	}
}

// TestTooManyArrays: a node of more arrays than a kernel has is an error with the reason.
func TestTooManyArrays(t *testing.T) {
	g := graph()
	var args []*ir.Node
	for range 20 {
		args = append(args, vector(g, ir.OpInput))
	}
	g.Outputs = []ir.Output{{Name: "y", Node: vector(g, ir.OpAdd, args...)}}
	_, err := plan.New(g, plan.Default, []int64{1, 1}, false, plan.MaxInside)
	if err == nil || err.Error() != "+: 21 arrays, more than 18" {
		t.Errorf("%v", err)
	}
}
