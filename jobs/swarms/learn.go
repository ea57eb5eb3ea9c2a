package swarms

import "math"

// MaxLearned is the largest number of nodes of a Learn. With the most units of a node, its JSON is
// less than the largest message.
const MaxLearned = 4096

// Learn merges values into knowledge nodes of a swarm, as the swarm merges them: a mean becomes the
// mean of the node and the values, an ema moves to them by its rate, and a max becomes the larger
// of each. A node that was never updated takes the values. The next tick has agents hear the node
// as it is then.
type Learn struct {
	Version int      `json:"v"`
	Nodes   []uint32 `json:"nodes"` // numbers, each once
	// Values are the values of all nodes, in their order, from -1 to 1: the same number for each
	// node.
	Values []float32 `json:"values"`
	// Replace has the values replace the nodes.
	Replace bool `json:"replace,omitempty"`
}

// Learned is the answer to a Learn.
type Learned struct {
	Version int `json:"v"`
	Nodes   int `json:"nodes"` // how many have learned
}

// DecodeLearn reads the data of an EntryLearn, as DecodeTick does.
func DecodeLearn(data []byte) (l Learn, err error) {
	if err := decodeEntry("learn", data, &l, &l.Version); err != nil {
		return l, err
	}
	return l, l.Validate()
}

// DecodeLearned reads the data of an EntryLearned.
func DecodeLearned(data []byte) (l Learned, err error) {
	return l, decodeEntry("learned", data, &l, &l.Version)
}

// Validate returns a *jobs.Error that names the first field which no swarm takes, with its place.
func (l Learn) Validate() error {
	if len(l.Nodes) < 1 || len(l.Nodes) > MaxLearned {
		return invalid("learn: %d nodes: use 1 to %d in an entry", len(l.Nodes), MaxLearned)
	}
	return l.Check()
}

// Check is Validate of any number of nodes.
func (l Learn) Check() error {
	if len(l.Nodes) == 0 || len(l.Values) == 0 || len(l.Values)%len(l.Nodes) != 0 {
		return invalid("learn: %d values for %d nodes: use as many for each as the swarm's nodes have units",
			len(l.Values), len(l.Nodes))
	}
	first, width := make(map[uint32]int, len(l.Nodes)), len(l.Values)/len(l.Nodes)
	for i, node := range l.Nodes {
		if before, twice := first[node]; twice {
			return invalid("learn: row %d: row %d has node %d too: use a row for each node", i+1, before+1, node)
		}
		first[node] = i
		for k, v := range l.Values[i*width:][:width] {
			if !(math.Abs(float64(v)) <= 1) {
				return invalid("learn: row %d, node %d: value %d is %v: use -1 to 1, which units hold", i+1, node, k+1,
					v)
			}
		}
	}
	return nil
}
