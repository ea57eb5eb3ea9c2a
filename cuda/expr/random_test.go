package expr_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var lengths = []int64{0, 1, 2, 5, 31, 33, 255, 1000, 1023, 1024, 1025, 4095, 4097, 8191, 8193, 16383, 16385, 20000}

// generator makes random programs, all of whose inputs have one length.
type generator struct {
	r       *rand.Rand
	p       *expr.Program
	in      map[string]expr.Array
	scalars map[string]bool
	rows    int64
	width   int64
	pool    []expr.Value
	// large leaves out the data of the inputs.
	large  bool
	inputs []expr.Source
}

var types = []ir.Type{ir.F32, ir.F32, ir.F32, ir.BF16, ir.I32, ir.U32, ir.U8, ir.Bool}

func (g *generator) input(i int) {
	t := types[g.r.IntN(len(types))]
	name := fmt.Sprintf("in%d", i)
	s, rows := expr.Shape{Width: 1}, g.rows
	switch g.r.IntN(8) {
	case 0:
		s.Scalar, rows = true, 1
		g.scalars[name] = true
	case 1:
		s.One, rows, s.Width = true, 1, g.width
	case 2, 3, 4:
		s.Width = g.width
	}
	g.inputs = append(g.inputs, expr.Source{Name: name, Type: t, Rows: rows, Width: s.Width, Scalar: s.Scalar})
	if g.large {
		g.pool = append(g.pool, g.p.In(name, t, s))
		return
	}
	data := fill(g.r, t, rows*max(s.Width, 1))
	if s.Scalar {
		data = append(data, make([]byte, 4-len(data))...)
		if t == ir.Bool {
			data[0] &= 1
		}
	}
	g.pool = append(g.pool, g.p.In(name, t, s))
	g.in[name] = expr.Array{Data: data, Rows: rows}
}

// pick returns a value of the pool, the latest ones more often.
func (g *generator) pick() expr.Value {
	n := len(g.pool)
	return g.pool[n-1-min(g.r.IntN(n), g.r.IntN(n))]
}

func (g *generator) number() ir.Type {
	return []ir.Type{ir.F32, ir.F32, ir.I32, ir.U32, ir.U8}[g.r.IntN(5)]
}

// matches reports whether values can be operands of one operation.
func matches(a, b expr.Value) bool {
	wa, ra := a.Width()
	wb, rb := b.Width()
	return (wa == wb || wa == 1 || wb == 1) && expr.SameLength(a, b) || !ra && wa == 1 || !rb && wb == 1
}

func (g *generator) step() {
	p := g.p
	a, b := g.pick(), g.pick()
	if !matches(a, b) {
		return
	}
	var v expr.Value
	switch g.r.IntN(16) {
	case 0, 1, 2, 3, 4:
		t := g.number()
		f := []func(a, b expr.Value) expr.Value{
			expr.Add, expr.Sub, expr.Mul, expr.Div, expr.Min, expr.Max, expr.Add, expr.Mul,
		}[g.r.IntN(8)]
		v = f(expr.Cast(t, a), expr.Cast(t, b))
	case 5:
		t := []ir.Type{ir.I32, ir.U32, ir.U8}[g.r.IntN(3)]
		f := []func(a, b expr.Value) expr.Value{expr.And, expr.Or, expr.Xor, expr.Shl, expr.Shr, expr.Rem}[g.r.IntN(6)]
		v = f(expr.Cast(t, a), expr.Cast(t, b))
	case 6:
		f := []func(expr.Value) expr.Value{
			expr.Sqrt,
			expr.Exp,
			expr.Log,
			expr.Tanh,
			expr.Floor,
			expr.Neg,
			expr.Abs,
		}
		v = f[g.r.IntN(len(f))](expr.Cast(ir.F32, a))
	case 7:
		f := []func(a, b expr.Value) expr.Value{expr.Less, expr.LessEqual, expr.Equal, expr.NotEqual}[g.r.IntN(4)]
		t := g.number()
		v = f(expr.Cast(t, a), expr.Cast(t, b))
	case 8:
		c := g.pick()
		if !matches(c, a) || !matches(c, b) {
			return
		}
		t := types[g.r.IntN(len(types))]
		v = expr.Select(expr.Cast(ir.Bool, c), expr.Cast(t, a), expr.Cast(t, b))
	case 9:
		v = expr.Cast(types[g.r.IntN(len(types))], a)
	case 10:
		if w, rows := a.Width(); !rows && w == 1 {
			return
		}
		v = expr.Reduce(ir.Fold(g.r.IntN(3)), a)
	case 11, 12:
		if _, rows := a.Width(); !rows {
			return
		}
		v = expr.ReduceRows(ir.Fold(g.r.IntN(3)), a)
	case 13:
		wa, ra := a.Width()
		wb, rb := b.Width()
		if wa != 1 || wb != 1 || !ra || !rb {
			return
		}
		keep := expr.Cast(ir.Bool, b)
		switch g.r.IntN(4) {
		case 0:
			keep = expr.Equal(expr.Cast(ir.U32, b), expr.Cast(ir.U32, b)) // all
		case 1:
			keep = expr.NotEqual(expr.Cast(ir.U32, b), expr.Cast(ir.U32, b)) // none
		case 2:
			keep = expr.Less(expr.Cast(ir.F32, b), p.F32Const(0.5))
		}
		v = expr.Filter(a, keep)
	case 14:
		wa, ra := a.Width()
		if wa != 1 || !ra {
			return
		}
		if g.r.IntN(2) == 0 {
			v = expr.Scan(a)
		} else if _, rows := b.Width(); rows {
			v = expr.Gather(a, expr.Cast([]ir.Type{ir.I32, ir.U32}[g.r.IntN(2)], b))
		} else {
			return
		}
	case 15:
		v = []expr.Value{
			p.Index(), p.Random(g.r.Uint32(), 3), p.F32Const(special[g.r.IntN(len(special))]), expr.Length(a),
		}[g.r.IntN(4)]
	}
	g.pool = append(g.pool, v)
}

func newGenerator(seed uint64) *generator {
	r := rand.New(rand.NewPCG(seed, 77))
	return &generator{r: r, p: expr.New(), in: map[string]expr.Array{}, scalars: map[string]bool{}}
}

func (g *generator) program() {
	for i := range 1 + g.r.IntN(5) {
		g.input(i)
	}
	for range 4 + g.r.IntN(24) {
		g.step()
	}
	for i := range 1 + g.r.IntN(3) {
		g.p.Out(fmt.Sprintf("out%d", i), g.pick())
	}
}

func generate(seed uint64) (*expr.Program, map[string]expr.Array, map[string]bool) {
	g := newGenerator(seed)
	g.rows = lengths[g.r.IntN(len(lengths))]
	g.width = []int64{1, 2, 3, 4, 8, 17, 64, 65, 128, 130, 256, 1024, 1030, 2052}[g.r.IntN(14)]
	if g.width > 16 {
		g.rows = min(g.rows, 40_000/g.width)
	}
	g.in[""] = expr.Array{Rows: g.rows}
	g.program()
	return g.p, g.in, g.scalars
}

// TestRandom: random programs give the bits of the interpreter, fused and not.
func TestRandom(t *testing.T) {
	d, s := open(t)
	c := &checker{d: d, s: s}
	begin := time.Now()
	for i := range *programs {
		n := *seed + uint64(i)
		if *deviceName != "emulated" && i%40 == 0 {
			c.compileAhead(t, n, min(40, *programs-i))
		}
		p, in, scalars := generate(n)
		if err := p.Err(); err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}
		off := int64(0)
		if n%3 == 0 {
			off = 4
		}
		c.add(t, fmt.Sprintf("seed %d", n), p, in, scalars, off)
		if i%40 == 39 {
			c.run()
		}
		if *limit > 0 && time.Since(begin) > *limit {
			t.Logf("%d programs in %v", i+1, time.Since(begin).Round(time.Second))
			break
		}
	}
	c.run()
}

// compileAhead compiles the programs of some seeds at the same time, so that the device has their
// kernels when they are added.
func (c *checker) compileAhead(t *testing.T, from uint64, n int) {
	t.Helper()
	var all sync.WaitGroup
	for i := range n {
		for _, unfused := range []bool{false, true} {
			all.Go(func() {
				p, _, _ := generate(from + uint64(i))
				if p.Err() != nil {
					return
				}
				if _, err := expr.Compile(c.d, p, expr.Options{Unfused: unfused}); err != nil {
					t.Errorf("seed %d: %v", from+uint64(i), err)
				}
			})
		}
	}
	all.Wait()
}

// TestRandomPlans: every random program has a plan and texts of kernels, fused and not. Nothing is
// compiled.
func TestRandomPlans(t *testing.T) {
	if *deviceName != "emulated" {
		t.Skip("other devices compile the texts")
	}
	d, _ := open(t)
	for n := range uint64(testkit.Of(100_000, 300)) {
		p, _, _ := generate(n)
		for _, unfused := range []bool{false, true} {
			if _, err := expr.Compile(d, p, expr.Options{Unfused: unfused}); err != nil {
				t.Fatalf("seed %d, unfused %v: %v\n%s", n, unfused, err, expr.Text(p))
			}
		}
	}
}
