package expr

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/expr/internal/codegen"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// The inputs that are known for every layout of pages, both u32: the number of the agent in its
// swarm, and the number of its group.
const (
	AgentInput = codegen.AgentInput
	GroupInput = codegen.GroupInput
)

// MaxFolds is the maximum of statements of a text of ParseFolds.
const MaxFolds = 8

// foldNames are the reductions of ParseFolds, in the order of messages.
var foldNames = []string{"sum", "mean", "min", "max", "count", "any", "all"}

// Folds is a text whose statements each fold a value of agents, as in
// "mean(abs(hidden)) by group where vote == 1".
type Folds struct {
	// All has the statements that are no local values, in their order.
	All []FoldText
	// By is the name behind by of the statements, empty for none. It is the same for all.
	By string

	p *Program
}

// FoldText is one statement of Folds.
type FoldText struct {
	Name string  // of the output
	Fold string  // sum, mean, min, max, count, any or all
	Type ir.Type // of the elements that are folded
	// Width is the number of elements of an agent.
	Width int64

	fold codegen.PageFold
}

// Float reports whether the result of the fold is a float.
func (f FoldText) Float() bool {
	return f.Fold == "mean" || f.Type.Float() && f.fold.Class <= codegen.MaxFloat
}

// ParseFolds parses a text of statements "name = fold(value) by name where condition", with ";"
// between them. The fold is sum, mean, min, max, count, any or all; the value has an element, or a
// row of them, for each agent, and depends on that agent alone. "by" and "where" may be left out,
// and "name := value" is a local value, as in Parse. sources are the variables of agents; Rows of
// them is not used. by are the names that may follow "by". Errors of the text are *SyntaxError.
func ParseFolds(text string, by []string, sources ...Source) (*Folds, error) {
	all, err := statements(text)
	if err != nil {
		return nil, err
	}
	b := &builder{p: New(), sources: map[string]Source{}, values: map[string]operand{}, roles: map[string]string{}}
	b.what = "variable"
	for _, s := range sources {
		b.sources[s.Name] = s
	}
	f := &Folds{p: b.p}
	for _, s := range all {
		if s.local {
			if s.by != "" || s.where != nil {
				return nil, &SyntaxError{s.at, "by and where belong to an output, not to " + s.name + " :=", nil}
			}
			if err := b.statement(s); err != nil {
				return nil, err
			}
			continue
		}
		if s.by != "" && !slices.Contains(by, s.by) {
			return nil, &SyntaxError{s.at, fmt.Sprintf("by %.60s: use by %s", s.by, strings.Join(by, ", by ")), ErrType}
		}
		if len(f.All) == 0 {
			f.By = s.by
		}
		if s.by != f.By {
			return nil, &SyntaxError{s.at, "all outputs of a text have the same by", nil}
		}
		if len(f.All) == MaxFolds {
			return nil, &SyntaxError{s.at, fmt.Sprintf("a text has at most %d outputs", MaxFolds), ErrLimit}
		}
		one, err := b.fold(s)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(f.All, func(o FoldText) bool { return o.Name == one.Name }) {
			return nil, &SyntaxError{s.at, fmt.Sprintf("%q is defined already", one.Name), nil}
		}
		f.All = append(f.All, one)
	}
	if len(f.All) == 0 {
		return nil, &SyntaxError{len(text), "the text has no output: use one as in mean(x)", nil}
	}
	return f, nil
}

// Inputs returns the names of the variables that the folds read.
func (f *Folds) Inputs() []string {
	names, _ := f.p.Inputs()
	return names
}

func (b *builder) fold(s statement) (FoldText, error) {
	o := FoldText{Name: s.name}
	if o.Name == "" {
		o.Name = "out"
	}
	call := s.tree
	if call.kind != 'c' || !slices.Contains(foldNames, call.name) || len(call.args) != 1 {
		return o, &SyntaxError{
			call.at, "use one of " + strings.Join(foldNames, ", ") + " of one value, as in mean(x)", ErrType,
		}
	}
	o.Fold = call.name
	v, err := b.elementwise(call.args[0])
	if err != nil {
		return o, err
	}
	var keep *ir.Node
	if s.where != nil {
		w, err := b.elementwise(s.where)
		if err != nil {
			return o, err
		}
		if w.n.Type != ir.Bool {
			return o, &SyntaxError{
				s.where.at,
				fmt.Sprintf("where: it is %v: use a condition, as in x > 0", w.n.Type),
				ErrType,
			}
		}
		keep = w.n
		if w.n.Width != v.n.Width && w.n.Width > 1 && v.n.Width > 1 {
			return o, &SyntaxError{
				s.where.at, fmt.Sprintf("where: rows of %d, the value has rows of %d", w.n.Width, v.n.Width), ErrType,
			}
		}
	}
	n := v.n
	o.Type, o.Width = n.Type, n.Width
	if keep != nil {
		o.Width = max(n.Width, keep.Width)
	}
	o.fold = codegen.PageFold{Value: n, Keep: keep, Width: o.Width}
	o.fold.Class = classOf(o.Fold, n.Type)
	return o, nil
}

// elementwise makes the value of a tree, which must depend on one agent alone.
func (b *builder) elementwise(s *syntax) (Value, error) {
	o, err := b.tree(s)
	if err != nil {
		return Value{}, err
	}
	v, err := b.typed(o, ir.F32, s.at)
	if err != nil {
		return v, err
	}
	if err := b.failed(s.at); err != nil {
		return v, err
	}
	seen := map[*ir.Node]bool{}
	var bad func(n *ir.Node) *ir.Node
	bad = func(n *ir.Node) *ir.Node {
		if seen[n] {
			return nil
		}
		seen[n] = true
		if n.Op != ir.OpInput && n.Op != ir.OpConst && n.Op.Operation().Arity == 0 {
			return n
		}
		for _, a := range n.Args {
			if found := bad(a); found != nil {
				return found
			}
		}
		return nil
	}
	if n := bad(v.n); n != nil {
		return v, &SyntaxError{
			s.at, fmt.Sprintf("%v: only operations of each agent alone may be in a fold of a swarm", n), ErrType,
		}
	}
	return v, nil
}

// FoldOf returns the fold of a name over elements of a type, to merge and read results without the
// text. FoldText has both names.
func FoldOf(fold, elements string) (FoldText, error) {
	for t := ir.F32; t <= ir.Bool; t++ {
		if t.String() == elements && slices.Contains(foldNames, fold) {
			f := FoldText{Fold: fold, Type: t}
			f.fold.Class = classOf(fold, t)
			return f, nil
		}
	}
	return FoldText{}, fmt.Errorf("expr: %.60q of %.60q: %w", fold, elements, ErrType)
}

// classOf returns what a fold does with elements of a type.
func classOf(fold string, t ir.Type) codegen.Class {
	c := codegen.Count
	switch {
	case fold == "sum" && t.Float(), fold == "mean" && t.Float():
		c = codegen.SumFloat
	case fold == "sum", fold == "mean" && t != ir.Bool:
		c = codegen.SumInt
	case fold == "min" && t.Float():
		c = codegen.MinFloat
	case fold == "min":
		c = codegen.MinInt
	case fold == "max" && t.Float():
		c = codegen.MaxFloat
	case fold == "max":
		c = codegen.MaxInt
	}
	return c
}

// Kind returns the type of the results: f64, i64, u64 or bool.
func (f FoldText) Kind() string {
	switch {
	case f.Fold == "any" || f.Fold == "all" || f.Type == ir.Bool && (f.Fold == "min" || f.Fold == "max"):
		return "bool"
	case f.Float():
		return "f64"
	case f.Type == ir.I32 && f.Fold != "count":
		return "i64"
	}
	return "u64"
}

// Number returns a result as a float64, and false for a mean, min or max of no element, which has
// no value. Bools are 0 and 1, and integers are rounded.
func (f FoldText) Number(p Partial) (v float64, exists bool) {
	bits := p.Bits
	integer := float64(bits)
	if f.Type == ir.I32 && f.Fold != "count" {
		integer = float64(int64(bits))
	}
	flag := func(on bool) (float64, bool) {
		if on {
			return 1, true
		}
		return 0, true
	}
	switch f.Fold {
	case "any":
		return flag(bits > 0)
	case "all":
		return flag(bits == p.N)
	case "count":
		return integer, true
	case "sum":
		if f.Type.Float() {
			return math.Float64frombits(bits), true
		}
		return integer, true
	}
	if p.N == 0 {
		return math.NaN(), false
	}
	if f.Type.Float() {
		integer = math.Float64frombits(bits)
	}
	if f.Fold == "mean" {
		return integer / float64(p.N), true
	}
	return integer, true
}

// Text returns a result as text, all digits of an integer, and "none" for one without a value.
func (f FoldText) Text(p Partial) string {
	v, exists := f.Number(p)
	switch kind := f.Kind(); {
	case !exists:
		return "none"
	case kind == "bool":
		return strconv.FormatBool(v != 0)
	case kind == "i64":
		return strconv.FormatInt(int64(p.Bits), 10)
	case kind == "u64":
		return strconv.FormatUint(p.Bits, 10)
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}
