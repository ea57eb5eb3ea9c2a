// Package trainset has the kernels that train the addressed gru: forward and backward steps, sums
// of gradients, Adam, and the tables that weights become. Importing it adds them to the set of
// package kernels. Package gpuagents/training launches them, and cuda/host/traintwin has their
// twins. Each operation and the order of each sum is in RFC 0073.
//
// P is the class of the cell, 8, 16 or 32, N are the agents of a launch, and T its moments; T*N is
// less than 2^31. Arrays by moment and agent have the index t*N+n. A run is Run moments in a row,
// the first at a multiple of Run.
package trainset

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// What the kernels of a class are called; Name has the whole names.
const (
	// Forward steps the agents of a launch through all moments. table is the table of the gates, as
	// kernels.AgentGRUTable begins. The inputs of an agent are row numbers[t*N+n] of rows, int16[][P],
	// or row t*N+n where embedded is 0. carry, float32[N][P], has the units before and behind. states,
	// int16[T][N][P], are the units behind each moment as numbers. An agent has lengths[n] moments, at
	// most T; what is behind them is not written.
	Forward = "train_forward"
	// Score makes the loss of targets: see ScoreArgs.
	Score = "train_score"
	// Back goes from the last moment to the first, and writes the gradients of the gates,
	// int16[T][N][4][P]: r, z, n, and the units' part of n; zeros where an agent has no moment.
	Back = "train_back"
	// Outer adds products of gradients of gates with inputs and with states before, and these
	// gradients, to sums, int64[runs][GateWeights(P)], in the order of the weights. Products are
	// whole.
	Outer = "train_outer"
	// Embed adds the gradients of inputs to sums of rows of the embedding, int64[][P].
	Embed = "train_embed"
)

// The kernels of all classes.
const (
	// Gather makes the gradient, its norm and the coefficient of clipping of sums, and sets the maxima
	// of weights in control to 0. partials has a float32 for each SuperTile of the gradient.
	Gather = "train_gather"
	// Adam is torch.optim.Adam with a gradient that is multiplied by the coefficient. It does nothing
	// if the norm is not finite.
	Adam = "train_adam"
	// Maxima sets the maxima of weights in control.
	Maxima = "train_maxima"
	// Table makes tables of weights: the table of the gates, the readout, and embed_rows of numbers;
	// and the exponents of maxima that are not 0, which are 0 then.
	Table = "train_table"
)

// ScoreArgs are the arguments of the kernels Score. With candidates of 0, items are the rows of the
// readout that targets ask, and there is one element for each; otherwise there are elements for
// each candidate. readout begins with ReadoutHead words: the coefficients of the logistic function.
// Behind them are the biases, int32[Padded(readout_rows)], and the numbers, int16[readout_rows][P].
//
// In training, with train of 1, every target of 0 and more adds its loss to totals, and its
// gradient to sums, int64[readout_rows*P+Padded(readout_rows)]. gradients, int16[T][N][elements],
// are numbers by 2^GradientBits, and 0 without a target. masks, uint32[T][N], has a bit for each
// unit that drop leaves in; unit k of moment t of agent n is out if half k%2 of word k%8/2 of
// Philox(seed; first+n, t, k/8, step) is less than drop.
//
// Otherwise predictions, float32[T][N][elements], are written where an item is 0 or more, or for
// all moments of agents with candidates; targets add their loss, and the other arrays are not used.

// Names of the kernels.
func Names() []string {
	var all []string
	for _, class := range Classes() {
		for _, what := range []string{Forward, Score, Back, Outer, Embed} {
			all = append(all, Name(what, class))
		}
	}
	return append(all, Gather, Adam, Maxima, Table)
}

// Classes returns the classes of units.
func Classes() []int { return []int{8, 16, kernels.AgentMostHidden} }

// Name is the name of a kernel of a class.
func Name(what string, class int) string { return fmt.Sprintf("%s_h%d", what, class) }

// Numbers that kernels and their callers agree on.
const (
	Block        = 128 // the largest block of a kernel of a class
	WideBlock    = 256 // the largest block of Outer and of the other kernels
	Run          = 8   // moments with one scale of gradients
	GradientBits = 14  // of gradients at the readout
	LossBits     = 24  // of losses
	EmbedBits    = 30  // of gradients of inputs
	// MostGradient is the largest number of a gradient of a gate, of either sign, and MostInput the
	// largest gradient of an input.
	MostGradient = 32512
	MostInput    = 64
	// MostExponent is the largest exponent of a scale, of either sign; FirstExponent is used before a
	// maximum is known; the largest gradient becomes 2^FirstExponent to 2^(FirstExponent+1).
	MostExponent  = 64
	FirstExponent = 13
	ReadoutHead   = 8 // words of a readout before its biases
	// LeastScale is the least exponent of the scale of weights.
	LeastScale = -64
	// SuperTile is ir.SuperSize of cuda/expr, the length of the part of a sum that a block adds.
	SuperTile = 16384
)

// Words of control.
const (
	ControlTicket       = 0
	ControlNorm         = 1 // float32
	ControlCoefficient  = 2 // float32
	ControlGates        = 4 // bits of the largest absolute value: of weights of gates as the table has them
	ControlGateBias     = 5 // rounded up
	ControlReadout      = 6
	ControlReadoutBias  = 7
	ControlGateScale    = 8 // int32, written by Table: w
	ControlReadoutScale = 9 // int32: wr
	ControlWords        = 16
)

// Words of totals, of 64 bits.
const (
	TotalLoss = 0 // by 2^LossBits
	TotalCut  = 1 // gradients that were cut off
	Totals    = 2
)

// GateWeights is the number of weights of the gates of a class: hidden [3][P][P], input [3][P][P],
// input bias [3][P] and hidden bias [3][P].
func GateWeights(class int) int { return 6*class*class + 6*class }

// Padded is a number of rows rounded up to 4.
func Padded(rows int) int { return (rows + 3) &^ 3 }

//go:embed *.cu *.cuh
var files embed.FS

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts kernels.Archive

//go:generate go run ../internal/gen trainset short:int16

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

func init() {
	set := kernels.Set{Folder: "trainset", Files: files, Params: paramsOf, Head: head()}
	for _, class := range Classes() {
		for _, what := range []string{Forward, Score, Back, Outer, Embed} {
			name, file := Name(what, class), strings.TrimPrefix(what, "train_")+".cu"
			most := Block
			if what == Outer {
				most = WideBlock
			}
			set.Register(kernels.Source{Name: name, File: file, MaxBlock: most, WholeWarps: true, Text: func() string {
				return fmt.Sprintf("#define HIDDEN %d\n#define ELEM F32\n", class) +
					kernels.Common("gru_agents.cuh") + kernels.Common("philox.cuh") +
					strings.Replace(set.Text("train.cuh", "gates.cuh", file), "\nKERNEL_NAME(", "\n"+name+"(", 1)
			}})
		}
	}
	for _, name := range []string{Gather, Adam, Maxima, Table} {
		set.Register(kernels.Source{
			Name: name, File: strings.TrimPrefix(name, "train_") + ".cu", MaxBlock: WideBlock, WholeWarps: true,
		}, "train.cuh")
	}
}

func head() string {
	var b strings.Builder
	for _, d := range []struct {
		name  string
		value int
	}{
		{"RUN", Run},
		{"GRADIENT_BITS", GradientBits},
		{"LOSS_BITS", LossBits},
		{"EMBED_BITS", EmbedBits},
		{"MOST_GRADIENT", MostGradient},
		{"MOST_INPUT", MostInput},
		{"MOST_EXPONENT", MostExponent},
		{"FIRST_EXPONENT", FirstExponent},
		{"READOUT_HEAD", ReadoutHead},
		{"LEAST_SCALE", LeastScale},
		{"SUPER_TILE", SuperTile},
		{"CONTROL_TICKET", ControlTicket},
		{"CONTROL_NORM", ControlNorm},
		{"CONTROL_COEFFICIENT", ControlCoefficient},
		{"CONTROL_GATES", ControlGates},
		{"CONTROL_GATE_BIAS", ControlGateBias},
		{"CONTROL_READOUT", ControlReadout},
		{"CONTROL_READOUT_BIAS", ControlReadoutBias},
		{"CONTROL_GATE_SCALE", ControlGateScale},
		{"CONTROL_READOUT_SCALE", ControlReadoutScale},
		{"TOTAL_LOSS", TotalLoss},
		{"TOTAL_CUT", TotalCut},
		{"UNIT_BITS", kernels.AgentUnitBits},
		{"INPUT_BITS", kernels.AgentInputBits},
		{"MOST_SCALE", kernels.AgentMostScale},
		{"MOST_CANDIDATES", kernels.AgentMostCandidates},
		{"TABLE_BIASES", kernels.AgentTableBias},
	} {
		fmt.Fprintf(&b, "#define %s %d\n", d.name, d.value)
	}
	for _, d := range []struct {
		name  string
		value float32
	}{
		{"MOST_GATE_WEIGHT", kernels.AgentGateWeight},
		{"MOST_GATE_BIAS", kernels.AgentGateBias},
		{"MOST_VOTE_WEIGHT", kernels.AgentVoteWeight},
		{"MOST_VOTE_BIAS", kernels.AgentVoteBias},
		{"MOST_GRU_INPUT", kernels.AgentGRUInput},
		{"LOGISTIC_A0", kernels.LogisticA0},
		{"LOGISTIC_A1", kernels.LogisticA1},
		{"LOGISTIC_A2", kernels.LogisticA2},
		{"LOGISTIC_B0", kernels.LogisticB0},
		{"LOGISTIC_B1", kernels.LogisticB1},
	} {
		fmt.Fprintf(&b, "#define %s %.9ef\n", d.name, d.value)
	}
	return b.String()
}
