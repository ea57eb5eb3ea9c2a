package expr

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Source describes an array that a text may name.
type Source struct {
	Name string
	Type ir.Type
	// Scalar: one number. Rows and Width describe the array. One row of several elements is
	// combined with every row.
	Scalar      bool
	Rows, Width int64
}

// Parse makes a program of a text: statements with ";" between them. "name = value" is an output,
// "name := value" is a name for the statements behind it, and a value alone is the output "out".
// Operators and their precedence are as in Go. A number takes the type of the other operand.
// "where" behind a value limits its sum, mean, min, max, count, any and all to the places where a
// condition holds. Errors of the text are *SyntaxError.
//
// Arrays that are only tables of gather, or only second factors of matmul, have a length of their
// own. The program has the sources that the text names, and no others.
func Parse(text string, sources ...Source) (*Program, error) {
	all, err := statements(text)
	if err != nil {
		return nil, err
	}
	b := &builder{p: New(), sources: map[string]Source{}, values: map[string]operand{}, roles: map[string]string{}}
	b.what = "array"
	for _, s := range sources {
		b.sources[s.Name] = s
	}
	for _, s := range all {
		b.findRoles(s.tree, "")
		if s.where != nil {
			b.findRoles(s.where, "")
		}
	}
	for name, role := range b.roles {
		if s := b.sources[name]; role == "" && s.Type != 0 && !s.Scalar {
			b.p.Expect(max(b.p.expected, s.Rows))
		}
	}
	for _, s := range all {
		if err := b.statement(s); err != nil {
			return nil, err
		}
	}
	if len(b.p.g.Outputs) == 0 {
		return nil, &SyntaxError{len(text), "the text has no output: use name = value, or a value", nil}
	}
	return b.p, b.p.Err()
}

// builder makes a program of statements. It adds an input when the first statement names it.
type builder struct {
	p       *Program
	sources map[string]Source
	values  map[string]operand
	// roles has the use of each name: "table", "factor", or "" for several uses.
	roles map[string]string
	where *Value // condition of the statement
	what  string // what a source is called in messages
}

// operand is a value, or a number that has no type yet.
type operand struct {
	v       Value
	literal bool
	num     float64
	whole   bool // the number has no fraction and stands without a point
}

// findRoles notes how names are used. It must have seen all statements before the first input is
// added, because the shape of an input depends on all its uses.
func (b *builder) findRoles(s *syntax, role string) {
	if s.kind == 'i' {
		if old, found := b.roles[s.name]; found && old != role {
			role = ""
		}
		b.roles[s.name] = role
	}
	for i, a := range s.args {
		if s.kind == 'c' && s.name == "grad" && i > 0 && a.kind == 'i' {
			continue // it names the input, and does not use it
		}
		role := ""
		if s.kind == 'c' &&
			(s.name == "gather" && i == 0 || (s.name == "matmul" || s.name == "chain") && i > 0) {
			role = "table"
			if s.name != "gather" {
				role = "factor"
			}
		}
		b.findRoles(a, role)
	}
}

func (b *builder) statement(s statement) error {
	if s.by != "" {
		return &SyntaxError{s.at, "by: only swarms have groups", ErrType}
	}
	b.where = nil
	if s.where != nil {
		w, err := b.tree(s.where)
		if err != nil {
			return err
		}
		if w.literal || w.v.n.Type != ir.Bool {
			return &SyntaxError{s.where.at, "where: use a condition, as in x > 0", ErrType}
		}
		b.where = &w.v
	}
	o, err := b.tree(s.tree)
	if err != nil {
		return err
	}
	if s.local {
		if _, found := b.values[s.name]; found || b.sources[s.name].Type != 0 {
			return &SyntaxError{s.at, fmt.Sprintf("%q is defined already", s.name), nil}
		}
		b.values[s.name] = o
		return nil
	}
	v, err := b.typed(o, ir.F32, s.tree.at)
	if err != nil {
		return err
	}
	name := s.name
	if name == "" {
		name = "out"
	}
	b.p.Out(name, v)
	return b.failed(s.at)
}

// failed returns the error of the program as one of the text, at the place where it was noticed.
func (b *builder) failed(at int) error {
	if b.p.err == nil {
		return nil
	}
	err := &SyntaxError{at, strings.TrimPrefix(b.p.err.Error(), "expr: "), ErrType}
	return err
}

// typed gives a number a type. A number that the type does not have is an error; other operands
// stay.
func (b *builder) typed(o operand, t ir.Type, at int) (Value, error) {
	if !o.literal {
		return o.v, nil
	}
	p := b.p
	low, high := map[ir.Type]float64{ir.I32: math.MinInt32}[t], map[ir.Type]float64{
		ir.I32: math.MaxInt32, ir.U32: math.MaxUint32, ir.U8: math.MaxUint8,
	}[t]
	switch {
	case t.Float():
		return p.F32Const(float32(o.num)), nil
	case t == ir.Bool:
		return Value{}, &SyntaxError{at, "a number is no bool: compare it", ErrType}
	case o.num != math.Trunc(o.num) || o.num < low || o.num > high:
		return Value{}, &SyntaxError{at, fmt.Sprintf("%v is no %v", o.num, t), ErrType}
	case t == ir.I32:
		return p.I32Const(int32(o.num)), nil
	case t == ir.U32:
		return p.U32Const(uint32(o.num)), nil
	}
	return p.constant(ir.U8, uint32(o.num)), nil
}

// tree makes the value of a tree. Operations on numbers alone are computed here, as float64.
func (b *builder) tree(s *syntax) (operand, error) {
	switch s.kind {
	case 'n':
		whole := !strings.ContainsAny(s.name, ".eE") || strings.HasPrefix(s.name, "0x")
		return operand{literal: true, num: s.num, whole: whole}, nil
	case 'i':
		return b.name(s)
	}
	args := make([]operand, len(s.args))
	for i, a := range s.args {
		var err error
		if args[i], err = b.tree(a); err != nil {
			return operand{}, err
		}
	}
	var v Value
	var err error
	switch {
	case s.kind == 'c':
		v, err = b.call(s, args)
	case len(args) == 1:
		if args[0].literal && (s.name == "-" || s.name == "+") {
			if s.name == "-" {
				args[0].num = -args[0].num
			}
			return args[0], nil
		}
		v, err = b.prefix(s, args[0])
	default:
		if args[0].literal && args[1].literal {
			if o, done := fold(s.name, args[0], args[1]); done {
				return o, nil
			}
		}
		v, err = b.infix(s, args)
	}
	if err == nil {
		err = b.failed(s.at)
	}
	return operand{v: v}, err
}

// fold computes with two numbers that have no type.
func fold(name string, x, y operand) (operand, bool) {
	o := operand{literal: true, whole: x.whole && y.whole}
	switch name {
	case "+":
		o.num = x.num + y.num
	case "-":
		o.num = x.num - y.num
	case "*":
		o.num = x.num * y.num
	case "/":
		o.num = x.num / y.num
	default:
		return o, false
	}
	o.whole = o.whole && o.num == math.Trunc(o.num)
	return o, true
}

func (b *builder) name(s *syntax) (operand, error) {
	if o, found := b.values[s.name]; found {
		return o, nil
	}
	switch s.name {
	case "true", "false":
		return operand{v: b.p.BoolConst(s.name == "true")}, nil
	case "pi":
		return operand{literal: true, num: math.Pi}, nil
	case "inf":
		return operand{literal: true, num: math.Inf(1)}, nil
	}
	src, found := b.sources[s.name]
	if !found {
		names := slices.Sorted(maps.Keys(b.sources))
		return operand{}, &SyntaxError{
			s.at, fmt.Sprintf("there is no %s %.60q: use one of %v", b.what, s.name, names), ErrType,
		}
	}
	shape := Shape{Scalar: src.Scalar, Width: max(src.Width, 1)}
	switch role := b.roles[s.name]; {
	case role == "table":
		shape.Own = true
	case role == "factor":
		shape.Rows = src.Rows
		if src.Rows == 0 {
			return operand{}, &SyntaxError{s.at, fmt.Sprintf("%q has no rows", s.name), ErrType}
		}
	case src.Rows == 1:
		for name, role := range b.roles { // where all have one row, it is the length
			other := b.sources[name]
			shape.One = shape.One || role == "" && other.Type != 0 && !other.Scalar && other.Rows != 1
		}
	}
	o := operand{v: b.p.In(s.name, src.Type, shape)}
	b.values[s.name] = o
	return o, b.failed(s.at)
}

// prefix makes the value of a prefix operator; a number is f32.
func (b *builder) prefix(s *syntax, o operand) (Value, error) {
	v, err := b.typed(o, ir.F32, s.at)
	if err != nil {
		return v, err
	}
	switch s.name {
	case "-":
		return Neg(v), nil
	case "!":
		return Not(v), nil
	case "^":
		return Inv(v), nil
	}
	return v, nil
}

// infixes are the functions of the binary operators except > and >=. The other ones are named in
// the table of operations.
var infixes = map[string]func(a, b Value) Value{"&&": And, "||": Or}

// same gives two operands one type: the type of the first operand that has a type, or f32.
func (b *builder) same(x, y operand, at int) (Value, Value, error) {
	t := ir.F32
	if !x.literal {
		t = x.v.n.Type
	} else if !y.literal {
		t = y.v.n.Type
	}
	v, err := b.typed(x, t, at)
	if err != nil {
		return v, v, err
	}
	w, err := b.typed(y, t, at)
	return v, w, err
}

func (b *builder) infix(s *syntax, args []operand) (Value, error) {
	v, w, err := b.same(args[0], args[1], s.at)
	if err != nil {
		return v, err
	}
	switch s.name {
	case ">":
		return Less(w, v), nil
	case ">=":
		return LessEqual(w, v), nil
	case "&&", "||":
		if v.n.Type != ir.Bool || w.n.Type != ir.Bool {
			return v, &SyntaxError{
				s.at,
				fmt.Sprintf("%s of %v and %v: use bools", s.name, v.n.Type, w.n.Type),
				ErrType,
			}
		}
	}
	return infixes[s.name](v, w), nil
}
