package kernels

import (
	"fmt"
	"strings"
)

// The readout by item of a gru whose agents are addressed has a row of weights for each item, which
// an observation names. Numbers are the ones of gru_table.go: units by 2^14, weights by 2^w, biases
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
