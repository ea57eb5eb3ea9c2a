package fusion

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/exoswarm/exoswarm/consensus"
)

const (
	// None is the node of an agent without a node.
	None uint32 = math.MaxUint32
	// MaxNodes is the largest number of nodes.
	MaxNodes = math.MaxUint32 - 1
	// MaxAgents is the largest number of agents of one accumulation.
	MaxAgents = math.MaxUint32 - 1
	// DimStep divides the number of values of an embedding, so rows are whole vectors of 16 bytes
	// in either type.
	DimStep = 8
	// MinDim is the least number of values of an embedding.
	MinDim = 8
	// MaxDim is the largest number of values of an embedding.
	MaxDim = 512
	// RunRows is the number of rows that are summed one by one; see the package's order of
	// additions. Shorter runs share the work of large nodes more evenly and write more sums: 128
	// rows add 1/128 to the bytes that are written and read again.
	RunRows = 128
)

// Nodes are M shared nodes in host memory: the plain form of what a Fuser has on its device. The
// zero value has no nodes. It is not for use by several goroutines at once.
type Nodes struct {
	// Dim is the number of columns.
	Dim int
	// Sums is [M][Dim], row-major: the sum of weight times value, in units of 1 and of the
	// embedding.
	Sums []float32
	// Weights is [M]: the sum of the weights, in units of 1/65536.
	Weights []uint64
	// Counts is [M]: the number of agents that were accumulated.
	Counts []uint64
}

// Report counts the agents of one accumulation: each is in one of the four counts.
type Report struct {
	Fused, Refused, Nobody, Invalid uint64
	// Weight is the weight of the fused agents, in units of 1/65536.
	Weight uint64
}

// Agents is the number of agents of the accumulation.
func (r Report) Agents() uint64 { return r.Fused + r.Refused + r.Nobody + r.Invalid }

// NewNodes returns empty nodes.
func NewNodes(nodes, dim int) (Nodes, error) {
	if err := checkShape(nodes, dim); err != nil {
		return Nodes{}, err
	}
	return Nodes{
		Dim: dim, Sums: make([]float32, nodes*dim), Weights: make([]uint64, nodes),
		Counts: make([]uint64, nodes),
	}, nil
}

func checkShape(nodes, dim int) error {
	if nodes < 1 || nodes > MaxNodes {
		return fmt.Errorf("%d nodes, want 1..%d: %w", nodes, MaxNodes, ErrShape)
	}
	if dim < MinDim || dim > MaxDim || dim%DimStep != 0 {
		return fmt.Errorf("embeddings of %d values, want a multiple of %d from %d to %d: %w", dim, DimStep, MinDim,
			MaxDim, ErrShape)
	}
	return nil
}

// Len is the number of nodes.
func (n *Nodes) Len() int { return len(n.Counts) }

// check returns ErrLength unless the slices fit together.
func (n *Nodes) check() error {
	if len(n.Weights) != len(n.Counts) || len(n.Sums) != len(n.Counts)*n.Dim {
		return fmt.Errorf("%d nodes of %d values with %d sums and %d weights: %w", len(n.Counts), n.Dim, len(n.Sums),
			len(n.Weights), ErrLength)
	}
	return nil
}

// finite returns ErrValue when a sum is NaN or infinite.
func (n *Nodes) finite() error {
	for i, v := range n.Sums {
		if !isFinite(v) {
			return fmt.Errorf("column %d of node %d is %v: %w", i%n.Dim, i/n.Dim, v, ErrValue)
		}
	}
	return nil
}

// Accumulate adds agents to their nodes in the order of additions of the static mode. members has
// an element for each agent, embeddings Dim values for each, and weights one for each or is nil:
// everyone then weighs 1. The slices stay the caller's. An error changes nothing.
func (n *Nodes) Accumulate(members []uint32, embeddings []float32, weights []uint32) (Report, error) {
	if err := n.check(); err != nil {
		return Report{}, err
	}
	if len(embeddings) != len(members)*n.Dim || weights != nil && len(weights) != len(members) ||
		len(members) > MaxAgents {
		return Report{}, fmt.Errorf("accumulate %d members, %d values and %d weights into nodes of %d values: %w",
			len(members), len(embeddings), len(weights), n.Dim, ErrLength)
	}
	var r Report
	rows := map[uint32][]int{} // the agents of each node, by their number
	added := map[uint32]uint64{}
	for i, node := range members {
		switch {
		case node == None:
			r.Nobody++
			continue
		case uint64(node) >= uint64(n.Len()):
			r.Invalid++
			continue
		}
		rows[node] = append(rows[node], i)
		if !allFinite(embeddings[i*n.Dim:][:n.Dim]) {
			r.Refused++
			continue
		}
		w := weightOf(weights, i)
		r.Fused++
		r.Weight += w // below 2^64: both factors are below 2^32
		added[node] += w
	}
	for node, w := range added {
		if _, carry := bits.Add64(n.Weights[node], w, 0); carry != 0 {
			return Report{}, fmt.Errorf("accumulate a weight of %d into node %d, which has %d: %w", w, node,
				n.Weights[node], ErrOverflow)
		}
	}
	for node, agents := range rows {
		sums := make([][]float32, 0, len(agents)/RunRows+1)
		for _, run := range cut(agents) {
			sum := make([]float32, n.Dim)
			for _, i := range run {
				x := embeddings[i*n.Dim:][:n.Dim]
				if !allFinite(x) {
					continue
				}
				n.Counts[node]++
				w := Factor(weightOf(weights, i))
				for d := range sum {
					product := w * x[d]
					sum[d] += product
				}
			}
			sums = append(sums, sum)
		}
		for len(sums) > 1 {
			var above [][]float32
			for _, run := range cut(sums) {
				sum := make([]float32, n.Dim)
				for _, x := range run {
					for d := range sum {
						sum[d] += x[d]
					}
				}
				above = append(above, sum)
			}
			sums = above
		}
		n.Weights[node] += added[node]
		to := n.Sums[int(node)*n.Dim:][:n.Dim]
		for d := range to {
			to[d] += sums[0][d]
		}
	}
	return r, nil
}

func cut[T any](row []T) (runs [][]T) {
	for len(row) > RunRows {
		runs, row = append(runs, row[:RunRows]), row[RunRows:]
	}
	return append(runs, row)
}

func weightOf(weights []uint32, i int) uint64 {
	if weights == nil {
		return consensus.One
	}
	return uint64(weights[i])
}

// Factor returns the factor of a weight in units of 1/65536: rounded to float32 once if it has more
// than 24 bits.
func Factor(weight uint64) float32 { return float32(weight) * (1.0 / consensus.One) }

func isFinite(v float32) bool { return math.Float32bits(v)&0x7f800000 != 0x7f800000 }

func allFinite(row []float32) bool {
	for _, v := range row {
		if !isFinite(v) {
			return false
		}
	}
	return true
}

// Means writes the weighted mean of each node to dst, which has [M][Dim] elements: the sum divided
// by the weight, in float32, and 0 for a node without weight.
func (n *Nodes) Means(dst []float32) error {
	if err := n.check(); err != nil {
		return err
	}
	if len(dst) != len(n.Sums) {
		return fmt.Errorf("means of %d values into %d: %w", len(n.Sums), len(dst), ErrLength)
	}
	for m, w := range n.Weights {
		by := Factor(w)
		for d := m * n.Dim; d < (m+1)*n.Dim; d++ {
			dst[d] = 0
			if w > 0 {
				dst[d] = n.Sums[d] / by
			}
		}
	}
	return nil
}
