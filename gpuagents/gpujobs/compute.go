package gpujobs

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
)

// Types of arrays and of expressions.
var (
	exprTypes = map[gpujob.Type]ir.Type{
		gpujob.F32: ir.F32, gpujob.I32: ir.I32, gpujob.U32: ir.U32, gpujob.U8: ir.U8,
	}
	arrayTypes = map[ir.Type]gpujob.Type{
		ir.F32: gpujob.F32, ir.I32: gpujob.I32, ir.U32: gpujob.U32, ir.U8: gpujob.U8, ir.Bool: gpujob.U8,
	}
)

func (t *task) compute(s *gpujob.ComputeSpec) func() (any, error) {
	inputs := map[string]*input{}
	var sources []expr.Source
	for _, name := range slices.Sorted(maps.Keys(s.In)) {
		a := s.In[name]
		inputs[name] = t.in("in."+name, a)
		source := expr.Source{Name: name, Type: exprTypes[a.Type], Rows: a.Shape[0], Width: 1}
		if len(a.Shape) == 2 {
			source.Width = a.Shape[1]
		}
		sources = append(sources, source)
	}
	for name := range s.Numbers {
		sources = append(sources, expr.Source{Name: name, Type: ir.F32, Scalar: true})
	}
	p, err := expr.Parse(s.Expr, sources...)
	if err == nil {
		err = t.outputs(p, sources)
	}
	return func() (any, error) {
		if err != nil {
			return nil, computeError(err)
		}
		in := map[string]expr.Memory{"": {Rows: rowsOf(sources)}}
		names, scalar := p.Inputs()
		for i, name := range names {
			if scalar[i] {
				in[name] = expr.Memory{Bits: math.Float32bits(s.Numbers[name])}
				continue
			}
			b, err := t.upload(inputs[name].data)
			if err != nil {
				return nil, err
			}
			in[name] = expr.Memory{Buffer: b, Rows: s.In[name].Shape[0]}
		}
		values, plan, err := t.expression(p, in, s.Explain)
		if err != nil {
			return nil, err
		}
		out := &gpujob.ComputeOutput{Values: values, Plan: plan, Ran: t.computed()}
		return out, t.storeMap(out.Values)
	}
}

// rowsOf returns the default length of the outputs of a program: the length of the longest array.
func rowsOf(sources []expr.Source) (rows int64) {
	for _, s := range sources {
		rows = max(rows, s.Rows)
	}
	return rows
}

// outputs counts the bytes of outputs and of matrix products.
func (t *task) outputs(p *expr.Program, sources []expr.Source) error {
	t.bytes += expr.Products(p, rowsOf(sources))
	for _, o := range p.Outputs() {
		if arrayTypes[o.Type] == "" {
			return fmt.Errorf("output %s is %v: use f32(...)", o.Name, o.Type)
		}
		rows := rowsOf(sources)
		if o.Scalar {
			rows = 1
		}
		if rows > 0 && o.Width > math.MaxInt64/8/rows {
			return fmt.Errorf("output %s: %d rows of %d elements do not fit", o.Name, rows, o.Width)
		}
		t.bytes += rows * o.Width * o.Type.Bytes()
	}
	return nil
}

// computeError returns an error of the expression as an error of the specification.
func computeError(err error) error {
	var syntax *expr.SyntaxError
	if errors.As(err, &syntax) {
		return jobs.Errorf(jobs.CodeInvalid, "spec.expr, column %d: %s", syntax.Offset+1, syntax.Text)
	}
	return jobs.Errorf(jobs.CodeInvalid, "spec.expr: %s", strings.TrimPrefix(err.Error(), "expr: "))
}

func (t *task) expression(p *expr.Program, in map[string]expr.Memory, explain bool) (map[string]gpujob.Array, string,
	error,
) {
	k, err := expr.Compile(t.slot.Device(), p, expr.Options{Rows: max(in[""].Rows, 1)})
	if errors.Is(err, expr.ErrLimit) || errors.Is(err, expr.ErrType) {
		return nil, "", computeError(err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("compute: %w", err)
	}
	stream, err := t.stream(t.slot.Device())
	if err != nil {
		return nil, "", err
	}
	results, err := k.Run(t.ctx, stream, in, nil)
	if errors.Is(err, expr.ErrArgs) || errors.Is(err, expr.ErrLimit) {
		return nil, "", computeError(err)
	}
	if err != nil {
		return nil, "", fmt.Errorf("compute: %w", err)
	}
	closed := map[device.Buffer]bool{}
	for _, m := range results {
		if !closed[m.Buffer] {
			closed[m.Buffer] = true
			t.left = append(t.left, m.Buffer)
		}
	}
	if err := stream.Sync(t.ctx); err != nil {
		return nil, "", fmt.Errorf("compute: %w", err)
	}
	values := map[string]gpujob.Array{}
	for _, o := range p.Outputs() {
		m := results[o.Name]
		a := gpujob.Array{Type: arrayTypes[o.Type], Shape: gpujob.Shape{m.Rows}}
		if o.Width > 1 {
			a.Shape = gpujob.Shape{m.Rows, o.Width}
		}
		a.Data = make([]byte, m.Rows*o.Width*o.Type.Bytes())
		if len(a.Data) > 0 {
			if err := m.Buffer.Read(m.Off, a.Data); err != nil {
				return nil, "", fmt.Errorf("compute: output %s: %w", o.Name, err)
			}
		}
		values[o.Name] = a
	}
	plan := ""
	if explain {
		plan = k.Explain()
	}
	return values, plan, nil
}

func (t *task) chain(s *gpujob.ChainSpec) func() (any, error) {
	inputs := make([]*input, len(s.Factors))
	p := expr.New()
	p.Expect(s.Factors[0].Shape[0])
	values := make([]expr.Value, len(s.Factors))
	for i := range s.Factors {
		f := &s.Factors[i]
		inputs[i] = t.in(fmt.Sprintf("factors[%d]", i), f)
		shape := expr.Shape{Width: f.Shape[1], Rows: f.Shape[0]}
		values[i] = p.In(factorName(i), ir.F32, shape)
		// Each product between has at most as many rows and columns as factors have.
		t.bytes += t.product(s.Factors[0].Shape[0], f.Shape[1])
	}
	p.Out("c", expr.Chain(values...))
	return func() (any, error) {
		if err := p.Err(); err != nil {
			return nil, computeError(err)
		}
		in := map[string]expr.Memory{}
		for i := range s.Factors {
			b, err := t.upload(inputs[i].data)
			if err != nil {
				return nil, err
			}
			in[factorName(i)] = expr.Memory{Buffer: b, Rows: s.Factors[i].Shape[0]}
		}
		arrays, _, err := t.expression(p, in, false)
		if err != nil {
			return nil, err
		}
		c := arrays["c"]
		c.Shape = gpujob.Shape{s.Factors[0].Shape[0], s.Factors[len(s.Factors)-1].Shape[1]}
		out := &gpujob.ChainOutput{C: c, Plan: expr.Order(p, "c"), Ran: t.computed()}
		return out, t.store([]string{"c"}, []*gpujob.Array{&out.C})
	}
}

func factorName(i int) string { return fmt.Sprintf("m%d", i+1) }
