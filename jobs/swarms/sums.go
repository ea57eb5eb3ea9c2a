package swarms

import (
	"encoding/binary"
	"math"
)

// MaxNodeSums is the largest size of the sums of knowledge nodes in bytes. As JSON they are less
// than the largest message.
const MaxNodeSums = 512 << 10

// NodeSums are the sums from which the next tick of a shard makes its knowledge nodes. They are
// integers, so the sums of several shards add up to the same bits in any order.
type NodeSums struct {
	Version int `json:"v"`
	Nodes   int `json:"nodes"`
	Units   int `json:"units"` // of a node
	// Words are uint64[Nodes][Units+1], little endian: for each unit the sum over the agents in
	// units of 2^-14 (by the merge max, the largest plus 2^14), and then the number of agents. By
	// the merge attention a unit is multiplied by the weight of its agent, and the last word is the
	// sum of weights.
	Words []byte `json:"words"`
}

const unitOne = 1 << 14

// DecodeNodeSums reads the data of an EntrySums.
func DecodeNodeSums(data []byte) (n NodeSums, err error) {
	if err := decodeEntry("sums", data, &n, &n.Version); err != nil {
		return n, err
	}
	if n.Nodes < 1 || n.Units < 1 || n.Nodes > MaxNodeSums || n.Units > MaxNodeSums ||
		len(n.Words) != 8*n.Nodes*(n.Units+1) {
		return n, invalid("sums: %d bytes for %d nodes of %d units: use 8 for each unit, and 8 for each node",
			len(n.Words), n.Nodes, n.Units)
	}
	return n, nil
}

// CheckSums returns a *jobs.Error unless words are sums that nodes of this number of agents may
// have: units sums for each node, over agents that weigh at most heaviest.
func CheckSums(words []uint64, nodes, units int, agents, heaviest uint64, merge string) error {
	if len(words) != nodes*(units+1) {
		return invalid("tick: sums of %d words: the swarm has %d nodes of %d units: use %d for each", len(words),
			nodes, units, units+1)
	}
	left := agents * heaviest // less than 2^32 agents of at most 2^16
	for node := range nodes {
		row := words[node*(units+1):][:units+1]
		count := row[units]
		if count > left {
			return invalid("tick: sums: node %d has a count of %d, and %d are left for it: add the sums of each shard "+
				"once", node, count, left)
		}
		left -= count
		for unit, w := range row[:units] {
			if !unitFits(w, count, merge) {
				return invalid("tick: sums: node %d, unit %d: a sum of %d by %s of a count of %d: units are from -1 "+
					"to 1, as integers of 2^-14", node, unit+1, int64(w), merge, count)
			}
		}
	}
	return nil
}

// unitFits reports whether a word may be the sum of a unit of agents that count so much.
func unitFits(w, count uint64, merge string) bool {
	if merge == MergeMax {
		return w <= 2*unitOne && (count > 0 || w == 0)
	}
	sum := int64(w)
	return sum != math.MinInt64 && uint64(max(sum, -sum)) <= count*unitOne
}

// MergeMax is the merge whose sums are the largest units.
const MergeMax = "max"

// AddSums adds the sums from to the sums to, which have the same length, by the rule of the merge.
// units is the number of units of a node.
func AddSums(to, words []uint64, units int, merge string) {
	for i, w := range words {
		if merge == MergeMax && i%(units+1) < units {
			to[i] = max(to[i], w)
			continue
		}
		to[i] += w
	}
}

// PutWords returns words as bytes, little endian, in memory of the caller.
func PutWords(words []uint64) []byte {
	data := make([]byte, 0, 8*len(words))
	for _, w := range words {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	return data
}

// Words returns the words of bytes whose number is a multiple of 8, in memory of the caller; of
// others the last ones are left out.
func Words(data []byte) []uint64 {
	words := make([]uint64, len(data)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(data[8*i:])
	}
	return words
}
