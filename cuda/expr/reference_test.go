package expr_test

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// reference computes programs of floats in float64, node by node: what derivatives are compared
// with.
type reference struct {
	g    *ir.Graph
	rows int64
	in   map[string][]float64
	done map[*ir.Node][]float64
}

// evaluate returns the outputs of a program whose free length is rows.
func evaluate(p *expr.Program, rows int64, in map[string][]float64) map[string][]float64 {
	r := &reference{g: expr.Graph(p), rows: rows, in: in, done: map[*ir.Node][]float64{}}
	out := map[string][]float64{}
	for _, o := range r.g.Outputs {
		out[o.Name] = r.value(o.Node)
	}
	return out
}

func (r *reference) length(lead int) int64 {
	switch s := r.g.Symbols[lead]; {
	case lead == ir.FreeLength:
		return r.rows
	case s.Fixed < 0: // a table
		return int64(len(r.in[s.Name]))
	default:
		return s.Fixed
	}
}

func (r *reference) value(n *ir.Node) []float64 {
	if v, found := r.done[n]; found {
		return v
	}
	var args [][]float64
	for _, a := range n.Args {
		args = append(args, r.value(a))
	}
	v := make([]float64, r.length(n.Lead)*n.Width)
	switch n.Op {
	case ir.OpInput:
		copy(v, r.in[r.g.Inputs[n.Imm].Name])
	case ir.OpConst:
		v[0] = float64(math.Float32frombits(uint32(n.Imm)))
		if !n.Type.Float() {
			v[0] = float64(uint32(n.Imm))
		}
	case ir.OpLength:
		v[0] = float64(r.length(int(n.Imm)))
	case ir.OpReduce, ir.OpRows:
		size := n.Args[0].Width
		if n.Op == ir.OpReduce {
			size = int64(len(args[0]))
		}
		for i := range v {
			v[i] = foldAll(ir.Fold(n.Imm), args[0][int64(i)*size:(int64(i)+1)*size])
		}
	case ir.OpColumns:
		for i, x := range args[0] {
			v[int64(i)%n.Width] += x
		}
	case ir.OpMatMul, ir.OpOuter:
		r.product(n, args, v)
	case ir.OpGather:
		for i, at := range args[1] {
			v[i] = args[0][max(0, min(int(at), len(args[0])-1))]
		}
	case ir.OpScatter:
		for i, at := range args[1] {
			v[max(0, min(int(at), len(v)-1))] += args[0][i]
		}
	default:
		for i := range v {
			var x [3]float64
			for j, a := range n.Args {
				at := int64(i)
				switch {
				case a.Lead == 0:
					at %= n.Width
				case a.Width == 1:
					at /= n.Width
				}
				x[j] = args[j][at%int64(len(args[j]))]
			}
			v[i] = apply(n.Op, x)
		}
	}
	r.done[n] = v
	return v
}

func (r *reference) product(n *ir.Node, args [][]float64, v []float64) {
	a, b := n.Args[0], n.Args[1]
	for row := range r.length(a.Lead) {
		for i := range a.Width {
			x := args[0][row*a.Width+i]
			for j := range n.Width {
				switch {
				case n.Op == ir.OpOuter:
					v[i*n.Width+j] += x * args[1][row*b.Width+j]
				case n.Imm == ir.Transposed:
					v[row*n.Width+j] += x * args[1][j*b.Width+i]
				default:
					v[row*n.Width+j] += x * args[1][i*b.Width+j]
				}
			}
		}
	}
}

func foldAll(f ir.Fold, v []float64) float64 {
	out := 0.0
	for i, x := range v {
		switch {
		case f == ir.FoldSum:
			out += x
		case i == 0, f == ir.FoldMin && x < out, f == ir.FoldMax && x > out:
			out = x
		}
	}
	return out
}

func apply(o ir.Op, x [3]float64) float64 {
	truth := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	switch o {
	case ir.OpNeg:
		return -x[0]
	case ir.OpAbs:
		return math.Abs(x[0])
	case ir.OpSqrt:
		return math.Sqrt(x[0])
	case ir.OpExp:
		return math.Exp(x[0])
	case ir.OpLog:
		return math.Log(x[0])
	case ir.OpTanh:
		return math.Tanh(x[0])
	case ir.OpFloor:
		return math.Floor(x[0])
	case ir.OpAdd:
		return x[0] + x[1]
	case ir.OpSub:
		return x[0] - x[1]
	case ir.OpMul:
		return x[0] * x[1]
	case ir.OpDiv:
		return x[0] / x[1]
	case ir.OpMin:
		return math.Min(x[0], x[1])
	case ir.OpMax:
		return math.Max(x[0], x[1])
	case ir.OpLess:
		return truth(x[0] < x[1])
	case ir.OpLessEqual:
		return truth(x[0] <= x[1])
	case ir.OpEqual:
		return truth(x[0] == x[1])
	case ir.OpSelect:
		if x[0] != 0 {
			return x[1]
		}
		return x[2]
	}
	return x[0] // a cast
}
