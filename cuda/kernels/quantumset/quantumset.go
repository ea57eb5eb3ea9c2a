// Package quantumset has the kernels of state vectors of qubits: passes of gates over tiles,
// matrices of rows, weights, samples and expectation values. Importing it adds them to the set of
// package kernels. Package gpuagents/quantum launches them, and cuda/host/twins has their twins.
//
// A buffer has rows of 2^qubits amplitudes, at least 2^MinQubits, and whole tiles. An amplitude is
// two float32, the real and the imaginary part. Bit q of the index of an amplitude in its row is
// the value of qubit q, and the bits above are the number of the row. Every operation of float32
// rounds. Tile fuses products with sums where its text says so, and nothing else is fused.
package quantumset

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The names of the kernels.
const (
	// Tile applies a pass: a list of gates to all tiles. tiles is the number of tiles that the pass
	// visits. matrices has the matrices of gates with GatePerRow: eight float32 at slot*rows+row.
	Tile = "state_tile"
	// Matrix makes the matrices of gates in the rows 0 to made-1 for Tile: products in float64,
	// rounded once. columns has width float64 for each row. recipes has a word for each slot, and
	// the factors behind them.
	Matrix = "state_matrix"
	// Weight adds up |a|^2 as Weight of package twins has it: over each run of RunSize amplitudes,
	// into sums, and over each group of 2^group runs, into totals, which the caller fills with zeros.
	// Only amplitudes count whose index has the bits of value where mask is set.
	Weight = "state_weight"
	// Sample draws shots of each row. A shot is the number Philox(seed; shot, first+row) of 64 bits as
	// a share of the weight of its row. totals are the running totals of the groups of a row. A sample
	// has the bit places[q] for qubit q, or none where places[q] is 64.
	Sample = "state_sample"
	// Expect adds the terms of Pauli strings that flip the same qubits to sums, as integers of scale
	// 2^62: strings has for each string the mask of the qubits that turn the sign, and ExpectImaginary
	// and ExpectNegative. sums has a word for each row and string, and are zeros before.
	Expect = "state_expect"
)

// Numbers that kernels and their callers agree on.
const (
	Block      = 256 // maximum of threads of a block
	TileQubits = 12  // qubits of a tile
	TileSize   = 1 << TileQubits
	HeldQubits = 4 // qubits whose amplitudes a thread holds in registers
	Held       = 1 << HeldQubits
	MinQubits  = 9 // of a row: a run is in one row
	RunSize    = 1 << MinQubits
	MaxGroup   = 9  // logarithm of the runs of a group
	MaxStrings = 64 // Pauli strings of a launch
	NoPlace    = 64 // of a qubit that is not in a sample
	// WeightScale is the weight of an amplitude of absolute value 1.
	WeightScale = 1 << 62
)

// A pass is words: PassWords of a head, two for each run, PhaseWords for each phase, and GateWords
// for each gate, which begin at an even word. AppendHead and AppendPhase write the words before the
// gates. A tile has TileQubits positions, in ascending order of their qubits. The index of a tile
// is spread over the qubits that are neither in the tile nor fixed, by runs: a mask of qubits, and
// by how much the index is shifted for them.
//
// A phase applies gates to the amplitudes of HeldQubits positions. If a phase has PhaseTrades, its
// order is the one before with some held positions and positions of lanes exchanged. A gate of a
// matrix acts on the held pairs of its mask. GateFactor multiplies a factor, which is 1 at first:
// by the first element of the matrix, or by the last one where an odd number of the qubits of
// GateSign is 1; GateLast turns that around. A gate of turns acts on all pairs that differ in a
// held target, for each target of its mask in ascending order: (x - t y, t x + y), or as a pivot (t
// x - y, x + t y). With GateApply the held amplitudes of the mask are then multiplied by the
// factor, unless it is 1, and the factor is 1 again.
const (
	PassQubits = 0 // two words: a byte for the qubit of each position, from the lowest on, six a word
	PassFixed  = 2 // mask of qubits outside of the tile that are fixed for all gates
	PassValue  = 3 // their values
	PassCounts = 4 // phases; bits 32 and above: gates
	PassFlags  = 5
	PassWords  = 6

	PassFresh = 1 << 8 // of PassFlags
	PassRuns  = 16     // of PassFlags: the number of runs, eight bits

	PhaseOrder = 0 // nibbles: the held positions, then the positions of the threads from the lowest bit on
	// PhaseTrades is for each held position a nibble of PhaseOrder: 0, or one more than the bit of a
	// lane with whose position it changes places.
	PhaseTrades = 48
	LaneQubits  = 5       // bits of a lane
	PhaseGates  = 1       // first gate; bits 32 to 62: the end; PhaseLocal and PhaseKeeps
	PhaseLocal  = 1 << 31 // a gate depends on positions of threads
	PhaseKeeps  = 1 << 63 // the next phase has PhaseTrades
	// PhaseHeld has places of the bits of a held number, and PhaseNibbles of the low and of the
	// high nibbles of a thread: in the state, and from bit PhaseNear on in the tile. The places of
	// held bits in the tile are in shared memory.
	PhaseHeld    = 2
	PhaseNibbles = 6
	PhaseWords   = 38
	PhaseNear    = 48

	GateHead    = 0 // see below
	GateOutside = 1 // mask of qubits that must have a value; they are outside of the tile
	GateValue   = 2 // their values
	GateSign    = 3 // mask of qubits outside of the tile; bits GateSigns and above: of positions of threads
	GateMatrix  = 4 // four words: the matrix by rows; of turns: a float32 for each target
	GateWords   = 8
	// GateTableWords count as gates behind a GateTable: two.
	GateTableWords = Held

	// Of GateHead: the kind in bits 0-3, the held target in bits 4-5, GatePerRow and GateApply, the
	// mask of held amplitudes in bits 8-23, the mask and the values of positions of threads in bits
	// 24-35 and 36-47, GateLast, GateFar and GateSigned. A gate with GatePerRow has its slot in place
	// of the matrix. GateOutside and GateValue count with GateFar, and GateSign with GateSigned.
	GatePerRow = 1 << 6
	GateApply  = 1 << 7
	GateMask   = 8
	GateLocal  = 24
	GateLocals = 36
	GateLast   = 48
	GateFar    = 1 << 49
	GateSigned = 1 << 50
	// Of GateSign.
	GateSigns = 52
	// Of the head of turns: the masks of the targets, and of the targets that have pivots.
	GateTurnsOf  = 4
	GatePivotsOf = 8
	// Of the head of a lookup: the number of tables, 1 to 15. Its word GateOutside has a nibble for
	// each table, which tells the nibble of an index by which a number is looked up: of the index
	// of a tile, or, less LookupLocal, of the positions of threads. These come last.
	GateTables  = 24
	LookupLocal = 12
)

// A recipe is a product of factors: bits 0-31 of its word are the first factor, which is applied
// first, and bits 32-62 the end. With RecipeLast the last element of the product is also the first.
// A factor is FactorWords: its kind, and eight float64. FactorConstant has a matrix by rows.
// FactorUnitary is exp(i gamma) U(theta, phi, lambda) of package circuit: each of these angles is a
// number and another one by a column, whose numbers are the halves of the words at FactorColumns; a
// product by 0 is left out. A matrix of FactorGiven is in eight columns, from the one at
// FactorColumns on.
const (
	RecipeLast     = 1 << 63
	FactorNumbers  = 1
	FactorColumns  = 9
	FactorWords    = 11
	FactorConstant = 1
	FactorUnitary  = 2
	FactorGiven    = 3
)

// The kinds of gates.
const (
	GateDense    = iota + 1 // any matrix
	GateReal                // all elements are real
	GateMixed               // the diagonal is real, and the other elements are imaginary
	GateFlip                // the diagonal is 0
	GateExchange            // exchanges the two amplitudes
	GateTurns
	GateFactor
	GateTable // multiplies held amplitude r by complex number r of GateTableWords that follow the gate
	// GateLookup multiplies the held amplitudes of the mask by a factor, unless that is 1: a
	// product of numbers of tables of 16, which follow the gate, the first one first.
	GateLookup
)

// Of a word of strings that follows the mask: the imaginary part of the products counts, and its
// negative.
const (
	ExpectImaginary = 1
	ExpectNegative  = 2
)

//go:embed *.cu *.cuh
var files embed.FS

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts kernels.Archive

//go:generate go run ../internal/gen quantumset

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

func init() {
	set := kernels.Set{Folder: "quantumset", Files: files, Params: paramsOf, Head: head()}
	for _, name := range []string{Tile, Matrix, Weight, Sample, Expect} {
		s := kernels.Source{
			Name: name, File: strings.TrimPrefix(name, "state_") + ".cu", MaxBlock: Block, WholeWarps: true,
		}
		if name == Sample {
			s.Text = func() string {
				return kernels.Common("philox.cuh") + set.Text("state.cuh", "sample.cu")
			}
		}
		set.Register(s, "state.cuh")
	}
}

func head() string {
	var b strings.Builder
	for _, d := range []struct {
		name  string
		value int
	}{
		{"TILE_QUBITS", TileQubits},
		{"HELD_QUBITS", HeldQubits},
		{"RUN_QUBITS", MinQubits},
		{"PASS_VALUE", PassValue},
		{"PASS_COUNTS", PassCounts},
		{"PASS_FLAGS", PassFlags},
		{"PASS_WORDS", PassWords},
		{"PASS_RUNS", PassRuns},
		{"PASS_FRESH", PassFresh},
		{"PHASE_GATES", PhaseGates},
		{"PHASE_HELD", PhaseHeld},
		{"PHASE_NIBBLES", PhaseNibbles},
		{"PHASE_NEAR", PhaseNear},
		{"PHASE_TRADES", PhaseTrades},
		{"PHASE_WORDS", PhaseWords},
		{"GATE_OUTSIDE", GateOutside},
		{"GATE_VALUE", GateValue},
		{"GATE_SIGN", GateSign},
		{"GATE_MATRIX", GateMatrix},
		{"GATE_WORDS", GateWords},
		{"GATE_PER_ROW", GatePerRow},
		{"GATE_APPLY", GateApply},
		{"GATE_MASK", GateMask},
		{"GATE_LOCAL", GateLocal},
		{"GATE_LOCALS", GateLocals},
		{"GATE_LAST", GateLast},
		{"GATE_TABLE_WORDS", GateTableWords},
		{"GATE_SIGNS", GateSigns},
		{"GATE_TURNS_OF", GateTurnsOf},
		{"GATE_PIVOTS_OF", GatePivotsOf},
		{"GATE_TURNS", GateTurns},
		{"GATE_LOOKUP", GateLookup},
		{"GATE_TABLES", GateTables},
		{"LOOKUP_LOCAL", LookupLocal},
		{"FACTOR_NUMBERS", FactorNumbers},
		{"FACTOR_COLUMNS", FactorColumns},
		{"FACTOR_WORDS", FactorWords},
		{"FACTOR_UNITARY", FactorUnitary},
		{"FACTOR_GIVEN", FactorGiven},
		{"GATE_DENSE", GateDense},
		{"GATE_REAL", GateReal},
		{"GATE_MIXED", GateMixed},
		{"GATE_FLIP", GateFlip},
		{"GATE_EXCHANGE", GateExchange},
		{"GATE_FACTOR", GateFactor},
		{"GATE_TABLE", GateTable},
		{"MAX_STRINGS", MaxStrings},
		{"NO_PLACE", NoPlace},
		{"EXPECT_IMAGINARY", ExpectImaginary},
		{"EXPECT_NEGATIVE", ExpectNegative},
	} {
		fmt.Fprintf(&b, "#define %s %d\n", d.name, d.value)
	}
	fmt.Fprintf(&b, "#define GATE_FAR %dull\n#define GATE_SIGNED %dull\n", uint64(GateFar), uint64(GateSigned))
	return b.String()
}
