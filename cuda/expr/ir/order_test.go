package ir_test

import (
	"math"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// TestIdentity: the identity of a fold changes no element, to the bit.
func TestIdentity(t *testing.T) {
	of, bits := math.Float32frombits, math.Float32bits
	none := of(ir.Identity(ir.F32, ir.FoldSum))
	for _, v := range []float32{0, float32(math.Copysign(0, -1)), 1.5, float32(math.Inf(-1))} {
		if got := none + v; bits(got) != bits(v) {
			t.Errorf("%v + %v = %v", none, v, got)
		}
	}
	for _, c := range []struct {
		t    ir.Type
		f    ir.Fold
		want uint32
	}{
		{ir.F32, ir.FoldMin, bits(float32(math.Inf(1)))},
		{ir.F32, ir.FoldMax, bits(float32(math.Inf(-1)))},
		{ir.I32, ir.FoldSum, 0},
		{ir.I32, ir.FoldMin, math.MaxInt32},
		{ir.I32, ir.FoldMax, 1 << 31},
		{ir.U32, ir.FoldMin, math.MaxUint32},
		{ir.U32, ir.FoldMax, 0},
	} {
		if got := ir.Identity(c.t, c.f); got != c.want {
			t.Errorf("%v of %v: %#x, want %#x", c.f, c.t, got, c.want)
		}
	}
}

// TestNames: each operation has a name of its own, because messages name operations by it.
func TestNames(t *testing.T) {
	seen := map[string]ir.Op{}
	for o := ir.OpInput; o <= ir.OpMatMul; o++ {
		if other, found := seen[o.String()]; found || o.String() == "" {
			t.Errorf("operations %d and %d are both named %q", other, o, o)
		}
		seen[o.String()] = o
	}
}

// TestSmallProduct: 64 columns are the most of a small product, whose second factor is an input.
func TestSmallProduct(t *testing.T) {
	product := func(inner, columns int64, second ir.Op) *ir.Node {
		return &ir.Node{
			Op: ir.OpMatMul, Width: columns, Args: []*ir.Node{{Width: inner}, {Op: second, Width: columns}},
		}
	}
	for _, c := range []struct {
		inner, columns int64
		second         ir.Op
		want           bool
	}{
		{64, 64, ir.OpInput, true}, {65, 64, ir.OpInput, false}, {64, 65, ir.OpInput, false}, {8, 8, ir.OpAdd, false},
	} {
		if got := product(c.inner, c.columns, c.second).SmallProduct(); got != c.want {
			t.Errorf("%d x %d of %v: %v", c.inner, c.columns, c.second, got)
		}
	}
}
