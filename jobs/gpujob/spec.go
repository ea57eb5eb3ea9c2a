package gpujob

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
)

// Ran says where a job was executed and how long that took, without the queue.
type Ran struct {
	Device  string  `json:"device"` // "host", "cuda:0"
	Model   string  `json:"model"`
	Seconds float64 `json:"seconds"` // of the computation, with copies to and from the device
}

// The operations of ReduceSpec.
const (
	OpSum  = "sum"
	OpMin  = "min"
	OpMax  = "max"
	OpMean = "mean"
)

// ReduceSpec asks for one number of an array of f32, f64, i32, i64, u32 or u64.
type ReduceSpec struct {
	Op string `json:"op"` // sum, min, max or mean
	In Array  `json:"in"`
}

// Kind implements Spec.
func (*ReduceSpec) Kind() string { return KindReduce }

// Check implements Spec.
func (s *ReduceSpec) Check() error {
	switch s.Op {
	case OpSum, OpMin, OpMax, OpMean:
	default:
		return invalid("spec.op %q: use sum, min, max or mean", s.Op)
	}
	if err := s.In.checkType("in", 0, F32, F64, I32, I64, U32, U64); err != nil {
		return err
	}
	if n, _ := s.In.Shape.Count(); n == 0 && s.Op != OpSum {
		return invalid("spec.in: an empty array has no %s", s.Op)
	}
	return nil
}

// ReduceOutput is the output of a job of kind reduce.
type ReduceOutput struct {
	// Value is the number: for sums of integers the exact sum, which may need more than 64 bits,
	// and otherwise a float64, or null if it is not finite; Text then has it. A NaN among floats
	// makes every result NaN.
	Value json.RawMessage `json:"value"`
	Text  string          `json:"text"` // the number as text, with NaN, +Inf and -Inf
	Ran
}

// SortSpec asks for the elements of an array in order.
type SortSpec struct {
	In         Array `json:"in"` // one dimension of f32, f64, i32, i64, u32 or u64
	Descending bool  `json:"descending,omitempty"`
	// Indices asks for the place that each element had. Equal elements keep their order.
	Indices bool `json:"indices,omitempty"`
}

// Kind implements Spec.
func (*SortSpec) Kind() string { return KindSort }

// Check implements Spec.
func (s *SortSpec) Check() error { return s.In.checkType("in", 1, F32, F64, I32, I64, U32, U64) }

// SortOutput is the output of a job of kind sort. NaN comes last, whatever the order is.
type SortOutput struct {
	Sorted  Array  `json:"sorted"`
	Indices *Array `json:"indices,omitempty"` // u32
	Ran
}

// MaxBins is the largest number of bins of a histogram.
const MaxBins = 1 << 20

// HistogramSpec asks for the counts of elements by bins of equal width. The last bin includes its
// upper end.
type HistogramSpec struct {
	In   Array   `json:"in"` // f32, f64, i32, i64, u32 or u64
	Bins int     `json:"bins"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
}

// Kind implements Spec.
func (*HistogramSpec) Kind() string { return KindHistogram }

// Check implements Spec.
func (s *HistogramSpec) Check() error {
	if s.Bins < 1 || s.Bins > MaxBins {
		return invalid("spec.bins %d: use 1 to %d", s.Bins, MaxBins)
	}
	if !(s.Min < s.Max) || math.IsInf(s.Max-s.Min, 0) {
		return invalid("spec.min %v, spec.max %v: use finite numbers, the smaller one first", s.Min, s.Max)
	}
	if math.IsInf(float64(s.Bins)/(s.Max-s.Min), 0) {
		return invalid("spec.min %v, spec.max %v: %d bins do not fit between them: use fewer", s.Min, s.Max, s.Bins)
	}
	return s.In.checkType("in", 0, F32, F64, I32, I64, U32, U64)
}

// HistogramOutput is the output of a job of kind histogram.
type HistogramOutput struct {
	Counts Array  `json:"counts"` // u64, one for each bin
	Below  uint64 `json:"below"`  // elements less than min
	Above  uint64 `json:"above"`  // elements greater than max
	NaN    uint64 `json:"nan"`
	Ran
}

// TallySpec asks for one round of votes.
type TallySpec struct {
	// Ballots are u8, one for each agent; 255 abstains, unless there are 256 candidates.
	Ballots    Array `json:"ballots"`
	Candidates int   `json:"candidates"` // 1 to 256
	// Rule is plurality, majority, weighted, unanimous, or quorum with a fraction, as in
	// "quorum 2/3"; " of all" behind it counts abstentions against. Empty: plurality.
	Rule string `json:"rule,omitempty"`
	// Weights are u8, u32 or f32, one for each ballot; nil: each weighs 1. Weights of f32 count in
	// units of 1/65536.
	Weights *Array `json:"weights,omitempty"`
	// Priorities are u32, one for each agent; the highest leads. nil: agent 0 leads.
	Priorities *Array `json:"priorities,omitempty"`
}

// Kind implements Spec.
func (*TallySpec) Kind() string { return KindTally }

// Check implements Spec. It does not read the rule, which the agent does.
func (s *TallySpec) Check() error {
	if s.Candidates < 1 || s.Candidates > 256 {
		return invalid("spec.candidates %d: use 1 to 256", s.Candidates)
	}
	if err := s.Ballots.checkType("ballots", 1, U8); err != nil {
		return err
	}
	for _, extra := range []struct {
		field string
		array *Array
		types []Type
	}{{"weights", s.Weights, []Type{U8, U32, F32}}, {"priorities", s.Priorities, []Type{U32}}} {
		if extra.array == nil {
			continue
		}
		if err := extra.array.checkType(extra.field, 1, extra.types...); err != nil {
			return err
		}
		if extra.array.Shape[0] != s.Ballots.Shape[0] {
			return invalid("spec.%s: %d elements for %d ballots", extra.field, extra.array.Shape[0],
				s.Ballots.Shape[0])
		}
	}
	return nil
}

// TallyOutput is the output of a job of kind tally.
type TallyOutput struct {
	Winner      *int     `json:"winner"` // null: nobody won
	QuorumMet   bool     `json:"quorum_met"`
	Counts      []uint64 `json:"counts"` // by candidate
	Total       uint64   `json:"total"`
	Abstentions uint64   `json:"abstentions"`
	Invalid     uint64   `json:"invalid"`
	BadWeights  uint64   `json:"bad_weights,omitempty"`
	Leader      *uint64  `json:"leader"` // the agent; null without ballots
	Priority    uint32   `json:"priority"`
	Ran
}

// FuseSpec asks for the fusion of embeddings into nodes.
type FuseSpec struct {
	// Embeddings are f32 of shape [agents, values]: a multiple of 8 values, 8 to 512.
	Embeddings Array `json:"embeddings"`
	// Members are u32, the node of each agent; 4294967295 belongs to no node.
	Members Array `json:"members"`
	Nodes   int   `json:"nodes"` // 1 to 2^24
	// Weights are u32 in units of 1/65536; nil: each agent weighs 1.
	Weights *Array `json:"weights,omitempty"`
}

// Kind implements Spec.
func (*FuseSpec) Kind() string { return KindFuse }

// maxNodes bounds the nodes of a job; all of its outputs are in memory.
const maxNodes = 1 << 24

// Check implements Spec.
func (s *FuseSpec) Check() error {
	if s.Nodes < 1 || s.Nodes > maxNodes {
		return invalid("spec.nodes %d: use 1 to %d", s.Nodes, maxNodes)
	}
	if err := s.Embeddings.checkType("embeddings", 2, F32); err != nil {
		return err
	}
	if d := s.Embeddings.Shape[1]; d < 8 || d > 512 || d%8 != 0 {
		return invalid("spec.embeddings.shape %v: use rows of 8 to 512 values, a multiple of 8",
			[]int64(s.Embeddings.Shape))
	}
	if err := s.Members.checkType("members", 1, U32); err != nil {
		return err
	}
	agents := s.Embeddings.Shape[0]
	if s.Members.Shape[0] != agents {
		return invalid("spec.members: %d elements for %d embeddings", s.Members.Shape[0], agents)
	}
	if s.Weights == nil {
		return nil
	}
	if err := s.Weights.checkType("weights", 1, U32); err != nil {
		return err
	}
	if s.Weights.Shape[0] != agents {
		return invalid("spec.weights: %d elements for %d embeddings", s.Weights.Shape[0], agents)
	}
	return nil
}

// FuseOutput is the output of a job of kind fuse.
type FuseOutput struct {
	Means   Array  `json:"means"`   // f32 of shape [nodes, values]; 0 for a node without weight
	Weights Array  `json:"weights"` // u64 by node, in units of 1/65536
	Counts  Array  `json:"counts"`  // u64 by node: its agents
	Fused   uint64 `json:"fused"`   // agents
	Refused uint64 `json:"refused"` // agents whose embedding is not finite
	Nobody  uint64 `json:"nobody"`  // agents that belong to no node
	Invalid uint64 `json:"invalid"` // agents with a node that does not exist
	Ran
}

// GemmSpec asks for alpha times the product of two matrices of f32.
type GemmSpec struct {
	A     Array   `json:"a"`               // [m, k], or [k, m] if it is transposed
	B     Array   `json:"b"`               // [k, n], or [n, k] if it is transposed
	TA    bool    `json:"ta,omitempty"`    // the transpose of a is meant
	TB    bool    `json:"tb,omitempty"`    // the transpose of b is meant
	Alpha float32 `json:"alpha,omitempty"` // 0: 1
}

// Kind implements Spec.
func (*GemmSpec) Kind() string { return KindGemm }

// Check implements Spec.
func (s *GemmSpec) Check() error {
	for _, m := range []struct {
		field string
		array *Array
	}{{"a", &s.A}, {"b", &s.B}} {
		if err := m.array.checkType(m.field, 2, F32); err != nil {
			return err
		}
		if m.array.Shape[0] > math.MaxInt32 || m.array.Shape[1] > math.MaxInt32 {
			return invalid("spec.%s.shape %v: use at most %d rows and columns", m.field, []int64(m.array.Shape),
				math.MaxInt32)
		}
	}
	if m, k, kb, n := s.Dims(); k != kb {
		return invalid("spec.a, spec.b: %d x %d times %d x %d: the inner sizes must be the same", m, k, kb, n)
	}
	return nil
}

// Dims returns the sizes of the product: a is m x k, and b is kb x n.
func (s *GemmSpec) Dims() (m, k, kb, n int64) {
	m, k, kb, n = s.A.Shape[0], s.A.Shape[1], s.B.Shape[0], s.B.Shape[1]
	if s.TA {
		m, k = k, m
	}
	if s.TB {
		kb, n = n, kb
	}
	return m, k, kb, n
}

// GemmOutput is the output of a job of kind gemm.
type GemmOutput struct {
	C Array `json:"c"` // f32 of shape [m, n]
	Ran
}

// Limits of KernelSpec.
const (
	MaxSource = 1 << 20 // bytes of a source, or of PTX
	MaxArgs   = 64
)

// KernelSpec asks for one launch of a kernel of the submitter.
type KernelSpec struct {
	// Source is CUDA C++ without #include, and PTX is what a compiler made of it. One of them is
	// given.
	Source string `json:"source,omitempty"`
	PTX    string `json:"ptx,omitempty"`
	Entry  string `json:"entry"` // the name of a __global__ function, or of an .entry
	Grid   []int  `json:"grid"`  // blocks, in 1 to 3 dimensions
	Block  []int  `json:"block"` // threads of a block, in 1 to 3 dimensions
	Shared int    `json:"shared,omitempty"`
	// Exact rounds after every operation, so that the results are the same on every chip.
	Exact bool  `json:"exact,omitempty"`
	Args  []Arg `json:"args"`
}

// Arg is an argument of a kernel: a scalar with Type and Value, an array with Array, or an array
// that the kernel fills, with Out.
type Arg struct {
	Name string `json:"name,omitempty"` // of an array in the output; empty: arg and its place, as in arg2
	// Type and Value are set for a scalar: f32, i32, u32, i64 or u64.
	Type  Type        `json:"type,omitempty"`
	Value json.Number `json:"value,omitempty"`
	Array *Array      `json:"array,omitempty"`
	// Return makes Array a part of the output too.
	Return bool  `json:"return,omitempty"`
	Out    *Zero `json:"out,omitempty"`
}

// Zero is an array of zeros.
type Zero struct {
	Type  Type  `json:"type"`
	Shape Shape `json:"shape"`
}

// Label returns the name of argument i in the output.
func (a *Arg) Label(i int) string {
	if a.Name != "" {
		return a.Name
	}
	return fmt.Sprintf("arg%d", i)
}

var (
	includePattern = regexp.MustCompile(`(?m)^[ \t]*#[ \t]*include\b`)
	labelPattern   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,31}$`)
)

// Kind implements Spec.
func (*KernelSpec) Kind() string { return KindKernel }

// Check implements Spec.
func (s *KernelSpec) Check() error {
	switch {
	case s.Source == "" && s.PTX == "":
		return invalid("spec.source is missing: use CUDA C++, or ptx")
	case s.Source != "" && s.PTX != "":
		return invalid("spec.source, spec.ptx: use one of them")
	case s.PTX != "" && s.Exact:
		return invalid("spec.exact: PTX says itself how it rounds: leave it out")
	case len(s.Source) > MaxSource:
		return invalid("spec.source: %d bytes: use at most %d", len(s.Source), MaxSource)
	case len(s.PTX) > MaxSource:
		return invalid("spec.ptx: %d bytes: use at most %d", len(s.PTX), MaxSource)
	case includePattern.MatchString(s.Source):
		return invalid("spec.source: #include: put the text of the file into the source")
	case !labelPattern.MatchString(s.Entry):
		return invalid("spec.entry %.60q: use the name of a __global__ function, at most 32 characters", s.Entry)
	case s.Shared < 0 || s.Shared > 1<<20:
		return invalid("spec.shared %d: use 0 to %d bytes", s.Shared, 1<<20)
	case len(s.Args) > MaxArgs:
		return invalid("spec.args: %d arguments: use at most %d", len(s.Args), MaxArgs)
	}
	for field, dims := range map[string][]int{"grid": s.Grid, "block": s.Block} {
		if len(dims) < 1 || len(dims) > 3 {
			return invalid("spec.%s %v: use 1 to 3 numbers", field, dims)
		}
		for _, d := range dims {
			if d < 1 || d > math.MaxInt32 {
				return invalid("spec.%s %v: use numbers from 1", field, dims)
			}
		}
	}
	labels := map[string]bool{}
	for i := range s.Args {
		a := &s.Args[i]
		if err := a.check(i); err != nil {
			return err
		}
		label := a.Label(i)
		if labels[label] {
			return invalid("spec.args[%d].name %q: another argument has it: use different names", i, label)
		}
		labels[label] = true
	}
	return nil
}

// check returns an error unless argument i has one of the three forms.
func (a *Arg) check(i int) error {
	field := fmt.Sprintf("args[%d]", i)
	if a.Name != "" && !labelPattern.MatchString(a.Name) {
		return invalid("spec.%s.name %.60q: use a letter and up to 31 letters, digits or _", field, a.Name)
	}
	switch {
	case a.Array != nil && a.Out == nil && a.Type == "":
		return a.Array.check(field + ".array")
	case a.Out != nil && a.Array == nil && a.Type == "":
		if a.Out.Type.Bytes() == 0 {
			return invalid("spec.%s.out.type %q: use %s", field, a.Out.Type, Types)
		}
		if _, err := a.Out.Shape.Count(); err != nil {
			return fmt.Errorf("spec.%s.out.shape: %w", field, err)
		}
		return nil
	case a.Type != "" && a.Array == nil && a.Out == nil:
		_, err := a.Bits()
		if err != nil {
			return invalid("spec.%s: %v", field, err)
		}
		return nil
	}
	return invalid("spec.%s: use type and value for a scalar, array, or out", field)
}

// Bits returns the bytes of a scalar in little-endian order.
func (a *Arg) Bits() ([]byte, error) {
	switch a.Type {
	case F32, I32, U32, I64, U64:
	default:
		return nil, invalid("type %q: use f32, i32, u32, i64 or u64 for a scalar", a.Type)
	}
	data, err := appendNumber(nil, a.Type, a.Value.String())
	if err != nil {
		return nil, invalid("value %q is no %s", a.Value.String(), a.Type)
	}
	return data, nil
}

// KernelOutput is the output of a job of kind kernel.
type KernelOutput struct {
	Arrays map[string]Array `json:"arrays"` // by the name of the argument
	Ran
}
