package expr

import (
	"fmt"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// function is a function of texts. Arguments that are numbers are f32.
type function struct {
	least, most int
	fn          func(b *builder, v []Value) Value
	// alike: all arguments have one type.
	alike bool
}

func elementwise(fn func(Value) Value) function {
	return function{1, 1, func(_ *builder, v []Value) Value { return fn(v[0]) }, false}
}

func (b *builder) number(v float32) Value { return b.p.F32Const(v) }

// functions are all functions of texts but random and uniform.
var functions map[string]function

func init() { //nolint:gochecknoinits // the functions of the table use the table's type
	functions = map[string]function{
		"softmax": elementwise(Softmax), "cumsum": elementwise(Scan),
		"ceil":   elementwise(func(v Value) Value { return Neg(Floor(Neg(v))) }),
		"square": elementwise(func(v Value) Value { return Mul(v, v) }),
		"isnan":  elementwise(func(v Value) Value { return NotEqual(v, v) }),
		"sigmoid": {1, 1, func(b *builder, v []Value) Value {
			return Div(b.number(1), Add(b.number(1), Exp(Neg(v[0]))))
		}, false},
		"relu":   {1, 1, func(b *builder, v []Value) Value { return Max(v[0], b.number(0)) }, false},
		"select": {3, 3, func(_ *builder, v []Value) Value { return Select(v[0], v[1], v[2]) }, false},
		"clamp":  {3, 3, func(_ *builder, v []Value) Value { return Min(Max(v[0], v[1]), v[2]) }, true},
		"gather": {2, 2, func(_ *builder, v []Value) Value { return Gather(v[0], v[1]) }, false},
		"filter": {2, 2, func(_ *builder, v []Value) Value { return Filter(v[0], v[1]) }, false},
		"matmul": {2, 2, func(_ *builder, v []Value) Value { return MatMul(v[0], v[1]) }, false},
		"chain":  {1, MaxChain, func(_ *builder, v []Value) Value { return Chain(v...) }, false},
		"index":  {0, 0, func(b *builder, _ []Value) Value { return b.p.Index() }, false},
		"len":    elementwise(Length),
		"min": {1, 2, func(b *builder, v []Value) Value {
			if len(v) == 2 {
				return Min(v[0], v[1])
			}
			return b.reduce(ir.FoldMin, v[0])
		}, true},
		"max": {1, 2, func(b *builder, v []Value) Value {
			if len(v) == 2 {
				return Max(v[0], v[1])
			}
			return b.reduce(ir.FoldMax, v[0])
		}, true},
		"sum": {1, 1, func(b *builder, v []Value) Value { return b.reduce(ir.FoldSum, v[0]) }, false},
		"count": {
			1,
			1,
			func(b *builder, v []Value) Value { return b.reduce(ir.FoldSum, Cast(ir.Bool, v[0])) },
			false,
		},
		"any": {1, 1, func(b *builder, v []Value) Value {
			return Cast(ir.Bool, b.reduce(ir.FoldMax, Cast(ir.U32, Cast(ir.Bool, v[0]))))
		}, false},
		"all": {1, 1, func(b *builder, v []Value) Value {
			return Cast(ir.Bool, b.reduce(ir.FoldMin, Cast(ir.U32, Cast(ir.Bool, v[0]))))
		}, false},
		"mean": {1, 1, func(b *builder, v []Value) Value { return b.mean(v[0]) }, false},
		"dot": {
			2,
			2,
			func(b *builder, v []Value) Value { return b.reduce(ir.FoldSum, Mul(v[0], v[1])) },
			true,
		},
		"row_sum": {1, 1, func(_ *builder, v []Value) Value { return ReduceRows(ir.FoldSum, v[0]) }, false},
		"row_min": {1, 1, func(_ *builder, v []Value) Value { return ReduceRows(ir.FoldMin, v[0]) }, false},
		"row_max": {1, 1, func(_ *builder, v []Value) Value { return ReduceRows(ir.FoldMax, v[0]) }, false},
		"row_mean": {1, 1, func(b *builder, v []Value) Value {
			if p, fits := ok(v[0]); !fits {
				return Value{p: p}
			}
			return Div(ReduceRows(ir.FoldSum, Cast(ir.F32, v[0])), b.number(float32(v[0].n.Width)))
		}, false},
		"col_sum": elementwise(SumColumns),
		"col_mean": elementwise(func(v Value) Value {
			if p, fits := ok(v); !fits {
				return Value{p: p}
			}
			return Div(SumColumns(v), v.p.length(v.n.Lead))
		}),
		"grad":      {2, 2, func(_ *builder, v []Value) Value { return Grad(v[0], v[1])[0] }, false},
		"normalize": {1, 1, func(_ *builder, v []Value) Value { return Normalize(v[0], 1e-5) }, false},
	}
	for o := ir.OpInput; o <= ir.OpMatMul; o++ {
		switch row := o.Operation(); {
		case row.Call:
			functions[row.Name] = elementwise(func(v Value) Value { return unary(o, v) })
		case row.Arity == 2:
			infixes[row.Name] = func(a, b Value) Value { return binary(o, a, b) }
		}
	}
	for t := ir.F32; t <= ir.Bool; t++ {
		functions[t.String()] = elementwise(func(v Value) Value { return Cast(t, v) })
	}
}

// reduce folds a value, where the condition of the statement holds: other elements are replaced by
// the identity of the fold, so that a condition does not change the order of the others.
func (b *builder) reduce(f ir.Fold, v Value) Value {
	if p, fits := ok(v); !fits {
		return Value{p: p}
	}
	if b.where == nil {
		return Reduce(f, v)
	}
	v = folded(v)
	none := ir.Identity(v.n.Type, f)
	if f == ir.FoldSum {
		none = 0
	}
	return Reduce(f, Select(*b.where, v, b.p.constant(v.n.Type, none)))
}

// mean is the mean where the condition of the statement holds.
func (b *builder) mean(v Value) Value {
	if p, fits := ok(v); !fits {
		return Value{p: p}
	}
	if b.where == nil {
		return Mean(v)
	}
	// A condition of rows holds for every element of them.
	count := Cast(ir.F32, Reduce(ir.FoldSum, *b.where))
	if v.n.Width > 1 && b.where.n.Width == 1 {
		count = Mul(count, b.number(float32(v.n.Width)))
	}
	return Div(b.reduce(ir.FoldSum, Cast(ir.F32, v)), count)
}

// call makes the value of a call. Arguments that are numbers get the type of the first argument
// that has one, where the function wants one type for all, and f32 elsewhere.
func (b *builder) call(s *syntax, args []operand) (Value, error) {
	if s.name == "random" || s.name == "uniform" {
		return b.random(s, args)
	}
	f, found := functions[s.name]
	if !found {
		names := append(slices.Sorted(maps.Keys(functions)), "random", "uniform")
		return Value{}, &SyntaxError{
			s.at,
			fmt.Sprintf("there is no function %.60q: use one of %v", s.name, names),
			nil,
		}
	}
	if len(args) < f.least || len(args) > f.most {
		return Value{}, &SyntaxError{
			s.at,
			fmt.Sprintf("%s has %d arguments, not %d", s.name, f.most, len(args)),
			nil,
		}
	}
	t := ir.F32
	for i, a := range args {
		if !a.literal && (f.alike || s.name == "select" && i > 0) {
			t = a.v.n.Type
			break
		}
	}
	values := make([]Value, len(args))
	for i, a := range args {
		var err error
		if values[i], err = b.typed(a, t, s.args[i].at); err != nil {
			return Value{}, err
		}
	}
	return f.fn(b, values), nil
}

func (b *builder) random(s *syntax, args []operand) (Value, error) {
	var words [2]uint32
	if len(args) > 2 {
		return Value{}, &SyntaxError{s.at, s.name + " has a seed and a stream", nil}
	}
	for i, a := range args {
		if !a.literal || a.num != float64(uint32(a.num)) {
			return Value{}, &SyntaxError{
				s.args[i].at,
				"seed and stream are whole numbers below 2^32",
				ErrType,
			}
		}
		words[i] = uint32(a.num)
	}
	if s.name == "uniform" {
		return b.p.Uniform(words[0], words[1]), nil
	}
	return b.p.Random(words[0], words[1]), nil
}
