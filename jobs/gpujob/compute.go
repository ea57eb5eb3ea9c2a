package gpujob

import (
	"fmt"
	"math"
)

// The kinds of job that compute expressions.
const (
	KindCompute = "compute" // an expression over arrays: ComputeSpec, ComputeOutput
	KindChain   = "chain"   // the product of several matrices: ChainSpec, ChainOutput
)

// Limits of ComputeSpec and ChainSpec.
const (
	MaxExpression = 64 << 10 // bytes of a text
	MaxArrays     = 24       // arrays and numbers of an expression
	MaxFactors    = 64       // matrices of a chain
)

// ComputeSpec asks for the outputs of an expression over arrays. Package cuda/expr describes the
// language.
type ComputeSpec struct {
	// Expr is the text: "sum(x*y)", or "d := x - mean(x); y = d / 2; s = sum(d*d)" with outputs y
	// and s.
	Expr string `json:"expr"`
	// In are the arrays by the names in the text: f32, i32, u32 or u8, of one or two dimensions. A
	// matrix has rows; an array of one dimension has one element in each.
	In map[string]*Array `json:"in,omitempty"`
	// Numbers are f32 by the names in the text.
	Numbers map[string]float32 `json:"numbers,omitempty"`
	// Explain asks for the plan too.
	Explain bool `json:"explain,omitempty"`
}

// Kind implements Spec.
func (*ComputeSpec) Kind() string { return KindCompute }

// Check implements Spec. It does not read the text, which the agent does.
func (s *ComputeSpec) Check() error {
	switch {
	case s.Expr == "":
		return invalid("spec.expr is missing: use an expression, as in sum(x*x)")
	case len(s.Expr) > MaxExpression:
		return invalid("spec.expr: %d bytes: use at most %d", len(s.Expr), MaxExpression)
	case len(s.In)+len(s.Numbers) > MaxArrays:
		return invalid("spec.in, spec.numbers: %d names: use at most %d", len(s.In)+len(s.Numbers), MaxArrays)
	}
	for name, a := range s.In {
		field := "in." + name
		if !labelPattern.MatchString(name) {
			return invalid("spec.in %.60q: use a letter and up to 31 letters, digits or _", name)
		}
		if a == nil {
			return invalid("spec.%s: use an array", field)
		}
		if err := a.checkType(field, 0, F32, I32, U32, U8); err != nil {
			return err
		}
		if len(a.Shape) > 2 {
			return invalid("spec.%s.shape %v: use 1 or 2 dimensions", field, []int64(a.Shape))
		}
		if len(a.Shape) == 2 && (a.Shape[1] < 1 || a.Shape[1] > 1<<24) {
			return invalid("spec.%s.shape %v: use rows of 1 to %d elements", field, []int64(a.Shape), 1<<24)
		}
	}
	for name, v := range s.Numbers {
		if !labelPattern.MatchString(name) || s.In[name] != nil {
			return invalid("spec.numbers %.60q: use a name of its own of letters, digits or _", name)
		}
		if math.IsInf(float64(v), 0) {
			return invalid("spec.numbers.%s: use a finite number", name)
		}
	}
	return nil
}

// ComputeOutput is the output of a job of kind compute.
type ComputeOutput struct {
	// Values are the outputs of the text by name. A single number has the shape [1]. Outputs of bool
	// are u8, 0 or 1.
	Values map[string]Array `json:"values"`
	// Plan is the text of the plan, if the specification asks for it.
	Plan string `json:"plan,omitempty"`
	Ran
}

// ChainSpec asks for the product of matrices, in the order of multiplications that is predicted to
// be the fastest.
type ChainSpec struct {
	Factors []Array `json:"factors"` // 2 to MaxFactors matrices of f32
}

// Kind implements Spec.
func (*ChainSpec) Kind() string { return KindChain }

// Check implements Spec.
func (s *ChainSpec) Check() error {
	if len(s.Factors) < 2 || len(s.Factors) > MaxFactors {
		return invalid("spec.factors: %d matrices: use 2 to %d", len(s.Factors), MaxFactors)
	}
	for i := range s.Factors {
		field := fmt.Sprintf("factors[%d]", i)
		f := &s.Factors[i]
		if err := f.checkType(field, 2, F32); err != nil {
			return err
		}
		if f.Shape[0] < 1 || f.Shape[1] < 1 || f.Shape[0] > math.MaxInt32 || f.Shape[1] > 1<<24 {
			return invalid("spec.%s.shape %v: use 1 to %d columns and up to %d rows", field, []int64(f.Shape), 1<<24,
				math.MaxInt32)
		}
		if i > 0 && s.Factors[i-1].Shape[1] != f.Shape[0] {
			return invalid("spec.%s.shape %v: the factor before has %d columns: use as many rows", field,
				[]int64(f.Shape), s.Factors[i-1].Shape[1])
		}
	}
	return nil
}

// ChainOutput is the output of a job of kind chain.
type ChainOutput struct {
	C    Array  `json:"c"`    // f32
	Plan string `json:"plan"` // the products in the order in which they were computed
	Ran
}
