package kernels

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Words of a custom cell's parameter block. Behind them stand the parameters that its step sees, a
// float32 each, in the order of Custom.Params. F is a float32 by its bits, the others are uint32.
const (
	CustomFeatures  = iota // I: features an observation
	CustomRule             // Rule
	CustomQuorum           // fraction in 16.16 fixed point, for RuleQuorum
	CustomFrontRate        // F: slowest rate of the group's level and spread
	CustomClip             // F: a feature beyond this many spreads counts as this many
	CustomShare            // fraction in 16.16: the group is as surprised as this share of its agents at least
	CustomHalf             // F: surprise that gives a score of 1/2
	CustomWarmup           // observations before the first score
	CustomDrop             // Drop
	CustomWords
)

// Variables of every custom cell's state, before the variables of its agents.
const (
	CustomVarRound  = iota // group u64: observations seen
	CustomVarLevel         // group [I]: running level of each feature above its offset
	CustomVarSpread        // group [I]: running mean distance from it, scaled to a normal's deviation
	CustomVarOffset        // group [I]: what is subtracted from each feature before it is a float32
	CustomVarAgents        // the first of the cell's own
)

// SeedWords is the length of the seed in weights: four parts of 16 bits, lowest first, each a whole
// number. A custom cell has no others.
const SeedWords = 4

// CustomKernel is the name of a custom cell's observe kernel.
const CustomKernel = "custom_observe"

// Limits of a custom cell.
const (
	MaxStepBytes        = 64 << 10 // of the step's text
	MaxCustomVars       = 64       // state variables of an agent
	MaxCustomWidth      = 256      // elements of one
	MaxCustomBytes      = 4096     // state of an agent
	MaxCustomParams     = 64       // in addition to the frame's
	MaxCustomCandidates = 16
)

// Custom is a cell whose step its user has written. Source makes a kernel of it.
type Custom struct {
	// Vars are the variables of an agent; their names and the names of Params have passed
	// CustomName.
	Vars []Var
	// Params are the parameters that the step sees.
	Params []string
	// Candidates is between how many an agent votes, 2 to MaxCustomCandidates.
	Candidates int
	// Step is CUDA C++ text with the function of StepSignature, and what else it needs.
	Step string
}

// StepSignature is how the step of a custom cell begins.
const StepSignature = "__device__ Ballot step(Agent &a, const Params &p, const Observation &x)"

// CustomVars lists the whole state of a custom cell for observations of I features.
func CustomVars(features int, agent []Var) []Var {
	return append([]Var{
		CustomVarRound:  {Name: "round", Elem: U64, Width: 1, Group: true},
		CustomVarLevel:  {Name: "level", Elem: F32, Width: features, Group: true},
		CustomVarSpread: {Name: "spread", Elem: F32, Width: features, Group: true},
		CustomVarOffset: {Name: "offset", Elem: I64, Width: features, Group: true},
	}, agent...)
}

// published are the functions of the frame that a step may call.
var published = []string{
	"Observation", "Ballot", "abstain", "add", "sub", "mul", "quo", "min32", "max32", "clamp32", "abs32", "tanh32",
	"log32", "project",
}

// cType is how a step sees an element; bf16 is widened.
var cType = map[Elem]string{
	F32: "float", U32: "unsigned", U64: "unsigned long long", U8: "unsigned char",
	BF16: "float",
}

// CType returns the type of C++ as which a step sees an element; bf16 is widened.
func (e Elem) CType() string { return cType[e] }

// StoredCType returns the type of C++ as which an element stands in a page.
func (e Elem) StoredCType() string {
	if e == BF16 {
		return "unsigned short"
	}
	return cType[e]
}

var defined = regexp.MustCompile(`(?m)^#define ([A-Za-z_0-9]+)`)

// WriteFrame writes the text of a frame in its namespace, and undefines its macros and earlier
// ones.
func WriteFrame(b *strings.Builder, frame string) {
	fmt.Fprintf(b, "namespace exoswarm_frame {\n%s} // namespace exoswarm_frame\n", frame)
	undefined := map[string]bool{}
	for _, m := range defined.FindAllStringSubmatch(b.String(), -1) {
		if !undefined[m[1]] {
			fmt.Fprintf(b, "#undef %s\n", m[1])
		}
		undefined[m[1]] = true
	}
}

// customFrame is custom.cuh with its includes; constant after start.
var customFrame = code("custom.cuh")

// Source is the text of the cell's kernel, CustomKernel with ObserveParams: the frame, the structs
// of the step, the kernel, and last the step itself, so that nothing in it changes what stands
// before. Compilers number the lines of the step as its author does, in a file called step. An
// error says what in the step is refused, and in which line.
func (c Custom) Source() (string, error) {
	step, err := CheckStep(c.Step, StepSignature, stepHead)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, w := range []struct {
		name  string
		value int
	}{
		{"CANDIDATES", c.Candidates},
		{"FEATURES", CustomFeatures},
		{"RULE", CustomRule},
		{"QUORUM", CustomQuorum},
		{"FRONT_RATE", CustomFrontRate},
		{"CLIP", CustomClip},
		{"SHARE", CustomShare},
		{"HALF", CustomHalf},
		{"WARMUP", CustomWarmup},
		{"DROP", CustomDrop},
		{"WORDS", CustomWords},
		{"VAR_ROUND", CustomVarRound},
		{"VAR_LEVEL", CustomVarLevel},
		{"VAR_SPREAD", CustomVarSpread},
		{"VAR_OFFSET", CustomVarOffset},
		{"VAR_LATEST", CustomVarAgents + len(c.Vars)},
	} {
		fmt.Fprintf(&b, "#define CUSTOM_%s %d\n", w.name, w.value)
	}
	WriteFrame(&b, customFrame)
	c.structs(&b)
	fmt.Fprintf(&b, `extern "C" __global__ void __launch_bounds__(1024)
%s(unsigned char *pages, unsigned long long page_bytes, const unsigned *layout, const unsigned *params,
               const float *weights, const exoswarm_frame::Run *runs, const long long *times,
               const double *features, float *scores, unsigned *decisions, unsigned *counts, unsigned *leaders,
               unsigned long long *rounds, unsigned char *host) {
  exoswarm_frame::observe_custom<exoswarm_cell::exoswarm_step>(pages, page_bytes, layout, params, weights, runs, times,
                                                               features, scores, decisions, counts, leaders, rounds,
                                                               host);
}
namespace exoswarm_cell {
#line 1 "step"
%s
}
`, CustomKernel, step)
	return b.String(), nil
}

// structs writes what the step is declared with, and what the frame asks of a Cell.
func (c Custom) structs(b *strings.Builder) {
	b.WriteString("namespace exoswarm_cell {\n")
	for _, name := range published {
		fmt.Fprintf(b, "using exoswarm_frame::%s;\n", name)
	}
	b.WriteString("struct Agent : exoswarm_frame::Numbers {\n")
	for _, v := range c.Vars {
		array := ""
		if v.Width > 1 {
			array = fmt.Sprintf("[%d]", v.Width)
		}
		fmt.Fprintf(b, "  %s %s%s;\n", cType[v.Elem], v.Name, array)
	}
	b.WriteString("};\nstruct Params {\n")
	for _, p := range c.Params {
		fmt.Fprintf(b, "  float %s;\n", p)
	}
	fmt.Fprintf(b, `};
enum : unsigned { candidates = %d };
%s;
struct exoswarm_step {
  typedef exoswarm_cell::Agent Agent;
  typedef exoswarm_cell::Params Params;
  __device__ static __forceinline__ Params params(const unsigned *words) {
    Params p;
`, c.Candidates, StepSignature)
	for i, p := range c.Params {
		fmt.Fprintf(b, "    p.%s = exoswarm_frame::param(words, %d);\n", p, i)
	}
	b.WriteString("    return p;\n  }\n  __device__ static __forceinline__ void load(const exoswarm_frame::State &s," +
		" unsigned i, Agent &a) {\n")
	c.each(b, "%[2]s = *%[1]s;", "%[2]s = exoswarm_frame::of_bf16(*%[1]s);")
	b.WriteString("  }\n  __device__ static __forceinline__ void store(const exoswarm_frame::State &s, unsigned i, " +
		"const Agent &a) {\n")
	c.each(b, "*%[1]s = %[2]s;", "*%[1]s = exoswarm_frame::to_bf16(%[2]s);")
	b.WriteString("  }\n  __device__ static __forceinline__ Ballot step(Agent &a, const Params &p, const " +
		"Observation &x) { return exoswarm_cell::step(a, p, x); }\n};\n} // namespace exoswarm_cell\n")
}

// each writes a statement for every variable, or a loop over its elements. statement is its format,
// and bf16 the format for variables of bf16: the arguments are the pointer and the field.
func (c Custom) each(b *strings.Builder, statement, bf16 string) {
	for i, v := range c.Vars {
		loop, element, field := "", "0", "a."+v.Name
		if v.Width > 1 {
			loop, element, field = fmt.Sprintf("for (unsigned c = 0; c < %d; c++) ", v.Width), "c", field+"[c]"
		}
		at := fmt.Sprintf("exoswarm_frame::element<%s>(s, %d, %s, i)", v.Elem.StoredCType(), CustomVarAgents+i, element)
		format := statement
		if v.Elem == BF16 {
			format = bf16
		}
		fmt.Fprintf(b, "    %s%s\n", loop, fmt.Sprintf(format, at, field))
	}
}

var customName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,62}$`)

// reserved are the members of every Agent, and words that are taken although C++ does not reserve
// them.
var reserved = []string{"index", "fixed", "uniform", "open", "step", "Agent", "Params", "Numbers"}

// keywords of C++17.
var keywords = strings.Fields(`
	alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl
	const constexpr const_cast continue decltype default delete do double dynamic_cast else enum explicit export
	extern false float for friend goto if inline int long mutable namespace new noexcept not not_eq nullptr
	operator or or_eq private protected public register reinterpret_cast return short signed sizeof static
	static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename
	union unsigned using virtual void volatile wchar_t while xor xor_eq`)

// CustomName refuses what can be no name of a state variable or of a parameter.
func CustomName(name string) error {
	switch {
	case !customName.MatchString(name) || strings.Contains(name, "__"):
		return fmt.Errorf("name %.80q: use 1 to 63 letters, digits and '_', a letter first and no two '_' together",
			name)
	case slices.Contains(keywords, name) || slices.Contains(reserved, name) || whyBanned(name) != "":
		return fmt.Errorf("name %q: it has a meaning of its own in a step: choose another", name)
	}
	return nil
}
