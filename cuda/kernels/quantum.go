package kernels

import (
	"fmt"
	"strings"
)

// Words of the parameter block of the quantum cell behind AgentWords. Agents write them, since they
// differ between shards, and between votes.
const (
	QuantumKey   = AgentWords + iota // two words: the seed of the swarm
	_                                //
	QuantumFirst                     // id in the swarm of the first agent of the shard
	QuantumRound                     // two words: the round of a vote
	_                                //
	QuantumWords
)

// Variables of the state of the quantum cell behind AgentVarVote.
const (
	QuantumVarDraws = AgentVarVote + 1 + iota // agent u32: its steps, which number its draws
	QuantumVarState                           // agent [2 * 2^qubits]: its amplitudes, each as two float32
)

// The table of the quantum cell: QuantumTableGates words of a head, and QuantumGateWords for each
// gate. A gate is a word with its kind and, from bit 4 on, its target, a word that is 0, two words
// of a mask of amplitudes, and a matrix by rows: four complex numbers of two float32.
const (
	QuantumTableCount  = 0 // gates
	QuantumTableFresh  = 1 // 1: a step begins with all qubits 0
	QuantumTablePlaces = 2 // by qubit, four bits: the bit of the ballot that it is measured into, or QuantumNoPlace
	QuantumTableGates  = 4
	QuantumGateMask    = 2
	QuantumGateMatrix  = 4
	QuantumGateWords   = 12
)

// Kinds of gates of the quantum cell. Pairs of amplitudes differ in the target, and the mask has
// the bit of the amplitude with a 0 there.
const (
	QuantumDense    = iota // the matrix, on the pairs of the mask
	QuantumReal            // a real matrix, on all pairs
	QuantumMixed           // a real diagonal, and the other elements are imaginary, on all pairs
	QuantumExchange        // exchanges the pairs of the mask
	QuantumFactor          // multiplies the amplitudes of the mask by the first or the last element
)

// Numbers of the quantum cell.
const (
	QuantumMostQubits = 6
	QuantumMostBits   = 4 // measured bits: 16 candidates
	QuantumMostGates  = 1024
	QuantumNoPlace    = 15
	QuantumBlock      = 128
	QuantumSpan       = 512     // agents that a block steps between two decisions of groups, if groups are small
	QuantumAngle      = 1 << 20 // features beyond it, of either sign, count as it
	// QuantumWeight is the weight of an amplitude of absolute value 1, and QuantumDrift how far the
	// weight of a state may be off it before the state is scaled. Weights are below 2^23, so that a
	// float32 that is 2^23 more has the weight in its lowest bits: the conversion of a float32 takes
	// as long as eight sums.
	QuantumWeight = 1 << 22
	QuantumDrift  = 1 << 10
	// QuantumVote is set in the high word of the number of a draw of a vote.
	QuantumVote = 1 << 31
)

// AgentQuantumVars lists the state of the quantum cell.
func AgentQuantumVars(qubits, candidates int) []Var {
	return []Var{
		AgentVarRound:   {Name: "round", Elem: U64, Width: 1, Group: true},
		AgentVarCounts:  {Name: "counts", Elem: U32, Width: candidates, Group: true, Together: true},
		AgentVarVote:    {Name: "vote", Elem: U8, Width: 1},
		QuantumVarDraws: {Name: "draws", Elem: U32, Width: 1},
		QuantumVarState: {Name: "state", Elem: F32, Width: 2 << qubits},
	}
}

// AgentQuantumName is the kernel tick or step of the quantum cell of a number of qubits. A tick of
// no steps measures: it draws the ballots of the round of the parameter block.
func AgentQuantumName(what string, qubits int) string {
	return fmt.Sprintf("quantum_%s_q%d", what, qubits)
}

func init() {
	for qubits := 1; qubits <= QuantumMostQubits; qubits++ {
		for _, what := range []string{"tick", "step"} {
			name, file := AgentQuantumName(what, qubits), "quantum_"+what+".cu"
			s := Source{Name: name, File: file, MaxBlock: QuantumBlock, WholeWarps: true}
			s.Text = func() string {
				return fmt.Sprintf("#define QUBITS %d\n%s", qubits,
					strings.Replace(code(file), "\nKERNEL_NAME(", "\n"+name+"(", 1))
			}
			register(s)
		}
	}
}
