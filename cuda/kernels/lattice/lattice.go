// Package lattice makes the kernels of custom cells on grids and graphs: a step that a user has
// written for an agent that hears its neighbours, in the frame of grid.cuh or links.cuh. Devices
// compile them, and gpuagents/lattice launches them.
package lattice

import (
	"embed"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The names of the kernels that make a tick of a grid, and of a graph.
const (
	Kernel      = "lattice_step"
	LinksKernel = "links_step"
)

// Block is the threads of a block. MostBand is the maximum of layers of a thread.
const (
	Block    = 128
	MostBand = 64
)

// Limits of a cell.
const (
	MaxVars       = 32 // variables of an agent
	MaxTerms      = 32 // reductions
	MaxCandidates = 16
	MostAgents    = math.MaxInt32
)

// HeadWords is the words of the parameter block before the parameters of the step: the seed, low
// word first.
const HeadWords = 2

// Ticks is the variable of a group that counts its ticks. It is the last one of a layout.
var Ticks = kernels.Var{Name: "ticks", Elem: kernels.U64, Width: 1, Group: true}

// StepSignature is how the step of a custom cell on a grid or a graph begins.
const StepSignature = "__device__ void step(Agent &self, const Params &p, const Around &around)"

var stepHead = regexp.MustCompile(`\bvoid\s+step\s*\(\s*Agent\s*&\s*\w*\s*,\s*const\s+Params\s*&\s*\w*\s*,` +
	`\s*const\s+Around\s*&\s*\w*\s*\)\s*\{`)

// Op is a reduction over the neighbours of an agent.
type Op string

// The reductions.
const (
	Sum   Op = "sum"
	Mean  Op = "mean"
	Max   Op = "max"
	Min   Op = "min"
	Count Op = "count" // of the values that are not 0
	// Weighted is the sum of values times the weights of links, as a float. It is for graphs.
	Weighted Op = "weighted"
)

// Ops lists the reductions in the order in which steps see them.
var Ops = []Op{Sum, Mean, Max, Min, Count, Weighted}

// Term is a reduction of a variable.
type Term struct {
	Op  Op
	Var string
}

// Cell is a custom cell on a grid or a graph.
type Cell struct {
	// Vars are the variables of an agent, each of width 1. Names have passed kernels.CustomName.
	Vars []kernels.Var
	// Params are the parameters that the step sees.
	Params []string
	// Hear are the reductions that the step sees.
	Hear []Term
	// Vote is the variable by which an agent votes between Candidates, 2 to MaxCandidates: for number
	// c if that is its value, and for the last one if the value is larger. A variable that is a float
	// has two candidates: 0, and all else.
	Vote       string
	Candidates int
	// Dimensions is 2 or 3, and 0 for a graph. With Faces, neighbours share a face: 4 or 6 of them
	// instead of 8 or 26. With Periodic, the first and the last agents on each axis are neighbours.
	Dimensions      int
	Faces, Periodic bool
	// Step is CUDA C++ text with the function of StepSignature, and what else it needs.
	Step string
}

// Layout returns the variables as pages have them: variables of agents, and the ticks of a group.
func (c Cell) Layout() []kernels.Var { return append(slices.Clone(c.Vars), Ticks) }

// pageParams are the first parameters of both kernels.
var pageParams = []device.Param{
	{Name: "from", Kind: device.KindBuffer},
	{Name: "from_frames", Kind: device.KindBuffer},
	{Name: "to", Kind: device.KindBuffer},
	{Name: "to_frames", Kind: device.KindBuffer},
	{Name: "page_bytes", Kind: device.KindUint32},
	{Name: "layout", Kind: device.KindBuffer},
	{Name: "params", Kind: device.KindBuffer},
}

// Params are the parameters of the kernel. A tick reads the generation from and writes the
// generation to. The two share no page. Pages have whole rows, each of them each, and magic and
// shift divide by that: see Divide. A thread makes band layers, up to MostBand. Agents have made
// tick ticks before. If count is 1, the agents that vote for each candidate are added to tally, 16
// numbers of 64 bits.
var Params = append(slices.Clone(pageParams), []device.Param{
	{Name: "width", Kind: device.KindUint32},
	{Name: "height", Kind: device.KindUint32},
	{Name: "depth", Kind: device.KindUint32},
	{Name: "each", Kind: device.KindUint32},
	{Name: "magic", Kind: device.KindUint32},
	{Name: "shift", Kind: device.KindUint32},
	{Name: "band", Kind: device.KindUint32},
	{Name: "tick", Kind: device.KindUint64},
	{Name: "count", Kind: device.KindUint32},
	{Name: "tally", Kind: device.KindBuffer},
}...)

// LinksParams are the parameters of the kernel of a graph. Agents are in pages of each. offsets,
// columns and weights are as package graphset has them, and rows have degree links unless that is
// 0. Weights are read if weighted is 1. The others are as in Params.
var LinksParams = append(slices.Clone(pageParams), []device.Param{
	{Name: "agents", Kind: device.KindUint32},
	{Name: "each", Kind: device.KindUint32},
	{Name: "magic", Kind: device.KindUint32},
	{Name: "shift", Kind: device.KindUint32},
	{Name: "offsets", Kind: device.KindBuffer},
	{Name: "columns", Kind: device.KindBuffer},
	{Name: "weights", Kind: device.KindBuffer},
	{Name: "degree", Kind: device.KindUint32},
	{Name: "weighted", Kind: device.KindUint32},
	{Name: "tick", Kind: device.KindUint64},
	{Name: "count", Kind: device.KindUint32},
	{Name: "tally", Kind: device.KindBuffer},
}...)

// Signature returns the name of the kernel of the cell, and its parameters.
func (c Cell) Signature() (name string, params []device.Param) {
	if c.Dimensions == 0 {
		return LinksKernel, LinksParams
	}
	return Kernel, Params
}

// Divide returns numbers by which n / each is the upper word of 2 n * magic, shifted right by
// shift, for any n below 2^31. each is 1 to 2^31.
func Divide(each uint32) (magic, shift uint32) {
	for uint64(1)<<shift < uint64(each) {
		shift++
	}
	return uint32((uint64(1)<<(31+shift) + uint64(each) - 1) / uint64(each)), shift
}

// published are the functions of the frame that a step may call.
var published = []string{
	"add", "sub", "mul", "quo", "min32", "max32", "clamp32", "abs32", "tanh32", "exp32", "log32",
}

//go:embed frame.cuh grid.cuh links.cuh
var files embed.FS

// The frames of a grid and of a graph, with what they include; constant after start.
var gridFrame, linksFrame = frame("grid.cuh"), frame("links.cuh")

// frame returns the common text and a file. A missing file is a mistake in this package and panics
// at start.
func frame(file string) (text string) {
	for _, name := range []string{"frame.cuh", file} {
		part, err := files.ReadFile(name)
		if err != nil {
			panic(fmt.Sprintf("lattice: %v", err))
		}
		text += string(part)
	}
	return strings.NewReplacer("#pragma once\n", "", "#include \"philox.cuh\"\n", kernels.Common("philox.cuh")).
		Replace(text)
}

// The kernels of a grid and of a graph.
const (
	head = `extern "C" __global__ void __launch_bounds__(128)
lattice_step(const unsigned char *from, const unsigned *from_frames, unsigned char *to, const unsigned *to_frames,
             unsigned page_bytes, const unsigned *layout, const unsigned *params, unsigned width,
             unsigned height, unsigned depth, unsigned each, unsigned magic, unsigned shift, unsigned band,
             unsigned long long tick, unsigned count, unsigned long long *tally) {
  const exoswarm_frame::Generation old = {(unsigned char *)from, from_frames}, made = {to, to_frames};
  const exoswarm_frame::Grid grid = {page_bytes, width, height, depth, each, magic, shift};
  exoswarm_frame::step_lattice<exoswarm_cell::exoswarm_step>(old, made, layout, params, grid, band, tick, count, tally);
}
`
	linksHead = `extern "C" __global__ void __launch_bounds__(128)
links_step(const unsigned char *from, const unsigned *from_frames, unsigned char *to, const unsigned *to_frames,
           unsigned page_bytes, const unsigned *layout, const unsigned *params, unsigned agents, unsigned each,
           unsigned magic, unsigned shift, const unsigned long long *offsets, const unsigned *columns,
           const int *weights, unsigned degree, unsigned weighted, unsigned long long tick, unsigned count,
           unsigned long long *tally) {
  const exoswarm_frame::Generation old = {(unsigned char *)from, from_frames}, made = {to, to_frames};
  const exoswarm_frame::Grid grid = {page_bytes, 1, agents, 1, each, magic, shift};
  const exoswarm_frame::Links links = {offsets, columns, weights, degree, weighted, agents};
  exoswarm_frame::step_links<exoswarm_cell::exoswarm_step>(old, made, layout, params, grid, links, tick, count, tally);
}
`
)

// Source returns the text of the kernel: the frame, the structs of the step, the kernel, and last
// the step itself, as kernels.Custom.Source has them. The error is an ErrHear, or a kernels.ErrStep
// that says what in the step is refused, and in which line.
func (c Cell) Source() (string, error) {
	terms, err := c.terms()
	if err != nil {
		return "", err
	}
	step, err := kernels.CheckStep(c.Step, StepSignature, stepHead)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	bit := map[bool]int{true: 1}
	fmt.Fprintf(&b, "#define LATTICE_DIMENSIONS %d\n#define LATTICE_FACES %d\n#define LATTICE_PERIODIC %d\n"+
		"#define LATTICE_CANDIDATES %d\n#define LATTICE_VARS %d\n", c.Dimensions, bit[c.Faces], bit[c.Periodic],
		c.Candidates, len(c.Vars)+1)
	text, kernel := gridFrame, head
	if c.Dimensions == 0 {
		text, kernel = linksFrame, linksHead
	}
	kernels.WriteFrame(&b, text)
	c.structs(&b, terms)
	b.WriteString(kernel + "namespace exoswarm_cell {\n#line 1 \"step\"\n" + step + "\n}\n")
	return b.String(), nil
}
