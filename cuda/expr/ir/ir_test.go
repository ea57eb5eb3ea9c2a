package ir_test

import (
	"fmt"
	"math"
	"strings"
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

// TestNames: names of operations are unique, because messages use them.
func TestNames(t *testing.T) {
	seen := map[string]ir.Op{}
	for o := ir.OpInput; o <= ir.OpMatMul; o++ {
		if other, found := seen[o.String()]; found || o.String() == "" {
			t.Errorf("operations %d and %d are both named %q", other, o, o)
		}
		seen[o.String()] = o
	}
}

// TestSmallProduct: a small product has at most 64 columns, and its second factor is an input.
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

// TestForms: each element-wise operation has a form for every type that its operands may have, in
// CUDA C++ and in Go.
func TestForms(t *testing.T) {
	for o := ir.OpInput; o <= ir.OpMatMul; o++ {
		row := o.Operation()
		for from := ir.F32; from <= ir.Bool; from++ {
			for to := ir.F32; to <= ir.Bool; to++ {
				switch {
				case row.Arity == 0, o != ir.OpCast && to != ir.F32, o == ir.OpSelect && from != ir.Bool,
					row.Operands != 0 && !row.Operands.Has(from):
					continue
				}
				n := &ir.Node{Op: o, Type: to, Args: []*ir.Node{{Type: from}}}
				f := n.Form()
				text := fmt.Sprintf(f.CUDA, []any{"a", "b", "c"}[:row.Arity]...)
				computes := f.Block != nil || row.Arity == 1 && f.One != nil || row.Arity == 2 && f.Two != nil
				if !computes || !strings.Contains(text, "a") || strings.Contains(text, "%!") {
					t.Errorf("%v of %v to %v: %q, computes %v", o, from, to, text, computes)
				}
			}
		}
	}
}
