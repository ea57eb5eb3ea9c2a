package batch

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
)

// NeverUpdated is the age of a knowledge node that was never updated.
const NeverUpdated = math.MaxUint64

// KnownNodes are the knowledge nodes that agents of a swarm hear, in the order in which they were asked
// for.
type KnownNodes struct {
	Node    []uint32
	Updates []uint64
	// Age is the most steps that a group of the node has made since the last update, or NeverUpdated.
	Age []uint64
	// Units are the values of the nodes, Width a row.
	Units []float32
	Width int
}

const (
	colUpdates = "updates"
	colAge     = "age"
	colUnits   = "units"
)

// Encode writes the batch as an Arrow IPC stream.
func (k *KnownNodes) Encode() ([]byte, error) {
	n := len(k.Node)
	if k.Width < 1 || len(k.Units) != n*k.Width {
		return nil, fmt.Errorf("encode known nodes: %d values for %d rows of width %d", len(k.Units), n, k.Width)
	}
	s, t := rows(arrow.PrimitiveTypes.Float32, k.Width, "known-nodes", colUnits,
		arrow.Field{Name: colNode, Type: arrow.PrimitiveTypes.Uint32},
		arrow.Field{Name: colUpdates, Type: arrow.PrimitiveTypes.Uint64},
		arrow.Field{Name: colAge, Type: arrow.PrimitiveTypes.Uint64})
	return encode(s, n, []arrow.ArrayData{
		fixed(arrow.PrimitiveTypes.Uint32, k.Node), fixed(arrow.PrimitiveTypes.Uint64, k.Updates),
		fixed(arrow.PrimitiveTypes.Uint64, k.Age), list(t, arrow.PrimitiveTypes.Float32, n, k.Units),
	})
}

// DecodeKnownNodes reads a batch, as DecodeAgentObservations does.
func DecodeKnownNodes(data []byte) (*KnownNodes, error) {
	k := &KnownNodes{}
	return k, decode("known-nodes", data, func(r *record) {
		k.Node, k.Updates, k.Age = column[uint32](r, colNode), column[uint64](r, colUpdates), column[uint64](r, colAge)
		k.Units, k.Width = lists[float32](r, colUnits)
	})
}
