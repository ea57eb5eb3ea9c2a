package plan

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/expr/cost"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Cost is what a part takes: what it reads and stores, the operations of all its elements, and the
// predicted time of a launch behind others.
type Cost struct {
	Bytes   float64 // of arrays, each once for all that reads it
	ops     float64
	Seconds float64
}

// weights are the instructions of an operation on one element; others have 1. They are counted in
// the text that nvcc makes, and not exact: they decide between memory and computation.
var weights = [...]float64{
	ir.OpSqrt: 12, ir.OpExp: 22, ir.OpLog: 28, ir.OpTanh: 40, ir.OpDiv: 12, ir.OpRem: 20, ir.OpRandom: 80, ir.OpCast: 2,
	ir.OpFloor: 6, ir.OpMin: 4, ir.OpMax: 4, ir.OpGather: 8,
}

// Weight returns the instructions of an operation on one element.
func Weight(o ir.Op) float64 {
	if int(o) < len(weights) {
		return max(weights[o], 1)
	}
	return 1
}

// length returns the length of a symbol, or a guess of it.
func length(lengths []int64, symbol int) float64 {
	if symbol < len(lengths) && lengths[symbol] >= 0 {
		return float64(lengths[symbol])
	}
	return cost.Guess
}

// predict returns the cost of a part for lengths of the symbols. The kind, the domain and all lists
// of nodes of the part are set. Memory and computation overlap: the smaller one adds 5 % of its
// time.
func predict(m *cost.Model, t *Part, lengths []int64) Cost {
	size := func(n *ir.Node) float64 { return length(lengths, n.Lead) * float64(n.Width) * float64(n.Type.Bytes()) }
	elements := length(lengths, t.Lead) * float64(t.Width)
	var c Cost
	var written float64
	if t.Kind == KindGemm {
		n := t.Roots[0]
		c.Bytes = size(n) + size(n.Args[0]) + size(n.Args[1])
		c.Seconds = m.Product(int64(length(lengths, n.Lead)), n.Args[0].Width, n.Width)
		return c
	}
	for _, n := range t.Reads {
		c.Bytes += size(n)
	}
	for _, n := range t.Inside {
		w := Weight(n.Op)
		count := elements
		if n.Scalar() {
			count = 1
		} else if n.Lead == t.Lead {
			count = length(lengths, n.Lead) * float64(n.Width)
		}
		switch n.Op {
		case ir.OpMatMul:
			c.ops += float64(n.Args[0].Width) * count
			continue
		case ir.OpReduce, ir.OpRows:
			count = length(lengths, n.Args[0].Lead) * float64(n.Args[0].Width)
		}
		c.ops += w * count
	}
	for _, n := range t.Roots {
		if t.Kind == KindCompact { // half of the elements, for want of anything better
			written += 0.5 * elements * float64(n.Type.Bytes())
		} else {
			written += size(n)
		}
	}
	rate := m.Read
	if written > 0.1*c.Bytes {
		rate = m.Copy
	}
	switch t.Kind { // their blocks wait for each other
	case KindCompact:
		rate *= 0.78
	case KindScan:
		rate *= 0.95
	}
	c.Bytes += written
	if c.Bytes < m.L2 {
		rate = m.Cache
	}
	memory := c.Bytes / rate
	// A small launch does not have enough loads in flight: at most so many bytes a microsecond.
	compute := c.Seconds + c.ops/m.Ops
	c.Seconds = m.Launch + memory + compute - 0.95*math.Min(memory, compute)
	if t.Kind == KindCompact {
		c.Seconds += 2 * m.Launch
	}
	return c
}
