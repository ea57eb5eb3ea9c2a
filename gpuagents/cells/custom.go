package cells

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// CustomName is what specs call cells whose step their user writes.
const CustomName = "custom"

// framed are the parameters of every custom cell: the parameters of the frame around its step,
// which the step sees too.
var framed = []Param{
	{Name: "front", Default: 2000, Min: 20, Max: 1e6, Doc: "observations over which level and spread of the input " +
		"are averaged"},
	{Name: "clip", Default: 30, Min: 1, Max: 1000, Doc: "spreads at which an input is cut off"},
	{Name: "share", Default: 0.5, Min: 0.01, Max: 1, Doc: "part of the agents that must be as surprised as the group"},
	{Name: "half", Default: 1, Min: 1e-6, Max: 1e6, Doc: "surprise of the group that gives a score of 1/2"},
	{Name: "warmup", Default: 0, Min: 0, Max: 1e6, Integer: true, Doc: "observations of a series before its first " +
		"score"},
}

// CustomParams returns the parameters that every custom cell has. The caller owns the slice.
func CustomParams() []Param { return slices.Clone(framed) }

// Custom returns a cell that a user has written. state has the type of each state variable of an
// agent by name: f32, bf16, u32, u8 or u64, and for an array its length in brackets. params are the
// parameters of the step with their defaults, step is its text in CUDA C++, and candidates are 2 to
// kernels.MaxCustomCandidates names. embedding names the variables of the embedding; without names
// these are all variables of f32 and bf16. State and parameters are in alphabetical order, whatever
// the order of the specification, so the same specification gives the same layout.
//
// The error is an ErrState, an ErrEmbedding, an ErrParameter or a kernels.ErrStep. The step is not
// compiled here.
func Custom(state map[string]string, params map[string]float64, step string, candidates []string,
	embedding ...string,
) (*Cell, error) {
	vars, err := customVars(state)
	if err != nil {
		return nil, err
	}
	if embedding, err = customEmbedding(vars, embedding); err != nil {
		return nil, err
	}
	if n := len(candidates); n < 2 || n > kernels.MaxCustomCandidates {
		return nil, fmt.Errorf("%w: %s votes between %d candidates, want 2 to %d", ErrParameter, CustomName, n,
			kernels.MaxCustomCandidates)
	}
	c := &Cell{
		Name: CustomName, Doc: "a cell whose step its user has written", Candidates: candidates, Agents: 256,
		Kernel: kernels.CustomKernel, Params: slices.Clone(framed), embedding: embedding,
		vars:    func(b *Bound) []kernels.Var { return kernels.CustomVars(b.Features, vars) },
		block:   customBlock,
		weights: customSeed,
	}
	of := kernels.Custom{Vars: vars, Candidates: len(candidates), Step: step}
	for _, p := range framed {
		of.Params = append(of.Params, p.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(params)) {
		if slices.Contains(of.Params, name) {
			continue
		}
		if err := kernels.CustomName(name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrParameter, err)
		}
		of.Params = append(of.Params, name)
		c.Params = append(c.Params, Param{
			Name: name, Default: params[name], Min: -math.MaxFloat32,
			Max: math.MaxFloat32, Doc: "of the step",
		})
	}
	if n := len(of.Params) - len(framed); n > kernels.MaxCustomParams {
		return nil, fmt.Errorf("%w: %d parameters, want %d at most", ErrParameter, n, kernels.MaxCustomParams)
	}
	c.Source, err = of.Source()
	return c, err
}

var elems = map[string]kernels.Elem{
	"f32": kernels.F32, "bf16": kernels.BF16, "u32": kernels.U32, "u8": kernels.U8,
	"u64": kernels.U64,
}

// customType matches the type of a variable: an element type, and the length of an array.
var customType = regexp.MustCompile(`^([a-z0-9]+)(?:\[([0-9]{1,4})\])?$`)

// customVars returns the variables of a custom cell in alphabetical order. The error is an
// ErrState.
func customVars(state map[string]string) (vars []kernels.Var, err error) {
	bad := func(format string, args ...any) ([]kernels.Var, error) {
		return nil, fmt.Errorf("%w: %s", ErrState, fmt.Sprintf(format, args...))
	}
	if len(state) > kernels.MaxCustomVars {
		return bad("%d variables, want %d at most", len(state), kernels.MaxCustomVars)
	}
	bytes := 0
	for _, name := range slices.Sorted(maps.Keys(state)) {
		if err := kernels.CustomName(name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrState, err)
		}
		m, width := customType.FindStringSubmatch(state[name]), 1
		if m == nil || elems[m[1]] == 0 {
			return bad("%s: type %.80q, want f32, bf16, u32, u8 or u64, and a length behind it for an array: f32[4]",
				name, state[name])
		}
		if m[2] != "" {
			width, _ = strconv.Atoi(m[2])
		}
		if width < 1 || width > kernels.MaxCustomWidth {
			return bad("%s: %d elements, want 1 to %d", name, width, kernels.MaxCustomWidth)
		}
		v := kernels.Var{Name: name, Elem: elems[m[1]], Width: width}
		vars, bytes = append(vars, v), bytes+width*v.Elem.Bytes()
	}
	if bytes > kernels.MaxCustomBytes {
		return bad("%d bytes an agent, want %d at most", bytes, kernels.MaxCustomBytes)
	}
	return vars, nil
}

// customBlock returns the parameter block: the words of the frame, and then all parameters in the
// order of Cell.Params, which is the order in which the generated kernel reads them.
func customBlock(b *Bound) []uint32 {
	w := make([]uint32, kernels.CustomWords, kernels.CustomWords+len(b.Cell.Params))
	w[kernels.CustomFeatures] = uint32(b.Features)
	w[kernels.CustomRule] = uint32(b.Voting.Rule)
	w[kernels.CustomQuorum] = fixed(b.Voting.Quorum)
	w[kernels.CustomFrontRate] = b.rate("front")
	w[kernels.CustomClip] = b.word("clip")
	w[kernels.CustomShare] = fixed(b.values["share"])
	w[kernels.CustomHalf] = b.word("half")
	w[kernels.CustomWarmup] = uint32(b.values["warmup"])
	w[kernels.CustomDrop] = uint32(b.Drop)
	for _, p := range b.Cell.Params {
		w = append(w, b.word(p.Name))
	}
	return w
}

// customSeed is the seed alone: a custom cell makes its numbers itself.
func customSeed(_ *Bound, seed uint64) []float32 { return seedParts(seed) }

// seedParts returns a seed as kernels read it from a table of floats: in parts of 16 bits, lowest
// first. A float32 holds each part exactly.
func seedParts(seed uint64) []float32 {
	w := make([]float32, kernels.SeedWords)
	for i := range w {
		w[i] = float32(uint16(seed >> (16 * i)))
	}
	return w
}
