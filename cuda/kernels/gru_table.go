package kernels

import (
	"fmt"
	"math"
	"strings"
)

// The gru of agent-addressed swarms multiplies fixed point numbers of 16 bits, which are two signed
// bytes, 256 high + low: units by 2^14, inputs by 2^11, weights by 2^w, where weights of inputs are
// taken eightfold so that all products have one scale. The product of the low bytes is left out. A
// sum is its bias and the others over 256, in int32, by 2^(w+6).
//
// No sum overflows, whatever the state is: a byte is in [-128, 127], the high one of a weight of a
// gate at most 125 and of the readout 63, so 64 products are at most 64 (256*128*125 +
// 128*(125+128)) < 2^28, and with a bias of 2^29 the float of a sum, and of the two of n added, has
// a fourth power below 2^123, which has a reciprocal. 32 products of the readout are at most 32
// (256*128*63 + 128*(63+128)) < 2^26, so with a bias of 2^26 a sum is less than 2^27 and one that
// is multiplied by 16 still an int32.
const (
	AgentUnitBits  = 14
	AgentInputBits = 11
	// inputs of a gru beyond it, of either sign, count as it: a bf16, and in fixed point less than
	// 2^15 - 128
	AgentGRUInput    float32 = 15.875
	AgentWeight              = 128   // the largest weight of a gru, of either sign
	AgentGateWeight          = 32000 // the largest of the gates in fixed point, and the one of the readout
	AgentVoteWeight          = 16000
	AgentGateBias            = 1 << 29 // the same of biases
	AgentVoteBias            = 1 << 26
	AgentNoCandidate         = -1 << 27 // the bias of a missing one: less than any sum
	AgentMostScale           = 20       // the largest w, which keeps the coefficients of the logistic function in range
)

// Words of the table of a gru of class H, of 32 bits.
const (
	AgentTableLogistic = 0 // F [5]: A0, A1, A2, B0, B1 for arguments by 2^(w+6)
	AgentTableBias     = 8 // int32 [H][4]: of the gates r and z, and of the inputs' and the units' part of n
)

// AgentTableReadoutBias is where the biases of the readout are, int32[AgentMostCandidates].
func AgentTableReadoutBias(class int) int { return AgentTableBias + 4*class }

// AgentTableWeights is where the weights of the gates r, z and n are, int16 [3][H][2][H]: for a
// unit the weights of the units, then of the inputs. Weights of n are doubled, as its biases are,
// since tanh(x) is made of the logistic function of 2x.
func AgentTableWeights(class int) int { return AgentTableReadoutBias(class) + AgentMostCandidates }

// AgentTableReadout is where the weights of the readout are, int16 [AgentMostCandidates][H].
func AgentTableReadout(class int) int { return AgentTableWeights(class) + 3*class*class }

// AgentGRUTable is the length of a table.
func AgentGRUTable(class int) int { return AgentTableReadout(class) + AgentMostCandidates*class/2 }

// Coefficients of the logistic function, x (A0 + A1 q + A2 q^2) / (q^2 + B1 q + B0) + 1/2 with q =
// x^2, as float32: a minimax fit to tanh over [0, 5.2], where it passes 1.
const (
	LogisticA0 float32 = 321.46945
	LogisticA1 float32 = 8.122616
	LogisticA2 float32 = 0.012773516
	LogisticB0 float32 = 1286.1791
	LogisticB1 float32 = 139.45882
)

// Logistic are the coefficients of the logistic function of x / 2^e, in the order A0, A1, A2, B0,
// B1: powers of two apart from the coefficients for x, so that it is the same to the bit.
func Logistic(e int) [5]float32 {
	by := func(c float32, e int) float32 { return float32(math.Ldexp(float64(c), e)) }
	return [5]float32{
		by(LogisticA0, 3*e), by(LogisticA1, e), by(LogisticA2, -e), by(LogisticB0, 4*e),
		by(LogisticB1, 2*e),
	}
}

// The readout by item of a gru whose agents are addressed has a row of weights for each item, which
// an observation names. Numbers are as in the table of the cell: units by 2^14, weights by 2^w, biases
// and sums by 2^(w+6), and the product of the low bytes is left out. The weights are at most
// AgentVoteWeight and the biases AgentVoteBias, so a sum is less than 2^27. The score of an agent
// for an item is the logistic function of the sum, by the coefficients of Logistic(w+6).
//
// The table of the items follows the table of the cell, AgentGRUTable words from its start.
const (
	AgentMostItems = 1 << 16 // rows of the readout
	AgentMostRows  = 1 << 20 // rows of an embedding: each number of one is a float32
	AgentNoItem    = -1      // in place of an item: no score is asked for
)

// Words of the table of items, of 32 bits.
const (
	AgentItemsLogistic = 0 // F [5]: A0, A1, A2, B0, B1 for arguments by 2^(w+6)
	AgentItemsBias     = 8 // int32 [items]
)

// AgentItemsReadout is where the weights are, int16 [items][H].
func AgentItemsReadout(items int) int { return AgentItemsBias + (items+3)&^3 }

// AgentItemsTable is the length of a table of items of a class.
func AgentItemsTable(items, class int) int { return AgentItemsReadout(items) + items*class/2 }

// ScoreArgs are the arguments of the kernels that compute the score of each observation's item by
// the units of its agent, behind the launch that has stepped the agents.
//
//   - table: uint32[AgentItemsTable]
//   - agents: uint32[count], of the step
//   - items: int32[count]: a number from 0 to of-1; any other asks for no score
//   - votes: which the step has stored
//   - of: the number of items
//   - scores: out float32[count]: from 0 to 1, or NaN where no score is asked for, or
//     the observation was refused
//   - host: as of the step, and head

func init() {
	for _, class := range []int{8, 16, AgentMostHidden} {
		for _, elem := range []Elem{F32, BF16} {
			name, state := AgentGRUName("score", class, elem), "F32"
			if elem == BF16 {
				state = "BF16"
			}
			register(Source{Name: name, File: "gru_score.cu", MaxBlock: 256, WholeWarps: true, Text: func() string {
				return fmt.Sprintf("#define HIDDEN %d\n#define ELEM %s\n%s", class, state,
					strings.Replace(code("gru_score.cu"), "\nKERNEL_NAME(", "\n"+name+"(", 1))
			}})
		}
	}
}
