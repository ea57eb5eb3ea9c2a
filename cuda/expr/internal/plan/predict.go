package plan

import (
	"math"

	"github.com/exoswarm/exoswarm/cuda/expr/ir"
)

// Cost is what a part takes: what it reads and stores, the operations of all its elements, and the
// predicted time of a launch behind others.
type Cost struct {
	Bytes   float64 // of arrays, each once for all that reads it
	ops     float64
	Seconds float64
}

// length returns the length of a symbol, or a guess of it.
func length(lengths []int64, symbol int) float64 {
	if symbol < len(lengths) && lengths[symbol] >= 0 {
		return float64(lengths[symbol])
	}
	return Guess
}

// predict returns the cost of a part for lengths of the symbols. The kind, the domain and all lists
// of nodes of the part are set. Memory and computation overlap: the smaller one adds 5 % of its
// time.
func predict(m *Model, t *Part, lengths []int64) Cost {
	size := func(n *ir.Node) float64 { return length(lengths, n.Lead) * float64(n.Width) * float64(n.Type.Bytes()) }
	elements := length(lengths, t.Lead) * float64(t.Width)
	var c Cost
	var written float64
	if t.Kind == KindGemm {
		n := t.Roots[0]
		c.Bytes = size(n) + size(n.Args[0]) + size(n.Args[1])
		rows, inner := int64(length(lengths, n.Lead)), n.Args[0].Width
		if n.Op == ir.OpOuter {
			rows, inner = inner, int64(length(lengths, n.Args[0].Lead))
		}
		c.Seconds = m.Product(rows, inner, n.Width)
		return c
	}
	for _, n := range t.Reads {
		c.Bytes += size(n)
	}
	for _, n := range t.Inside {
		w := n.Op.Weight()
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
		case ir.OpOuter:
			c.ops += length(lengths, t.Lead) * float64(n.Args[0].Width*n.Width)
			continue
		case ir.OpScatter: // each element of the table compares all indices
			c.ops += 2 * length(lengths, n.Lead) * length(lengths, t.Lead)
			continue
		case ir.OpReduce, ir.OpRows, ir.OpColumns:
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
	c.Bytes += written
	if c.Bytes < m.L2 {
		rate = m.Cache
	}
	f := frames[t.Kind]
	if len(t.Folds()) > 0 {
		f.start += foldStart
	}
	memory := c.Bytes / (rate * f.rate)
	compute := c.Seconds + c.ops/m.Ops
	c.Seconds = m.Launch*(1+f.start) + memory + compute - 0.95*math.Min(memory, compute)
	return c
}

// frame is what the frame of a kind costs: a time in addition to the launch, in launches, and the
// part of the rate of memory that it reaches.
type frame struct{ start, rate float64 }

// frames are fitted to measured kernels, as Default is. The blocks of filters and scans wait for
// each other, and the host waits for the length of a filter.
var frames = [...]frame{
	KindMap: {0, 1}, KindRows: {0.7, 0.9}, KindCompact: {4, 0.65}, KindScan: {1.2, 0.85}, KindSmall: {0, 1},
	KindGemm: {0, 1}, KindSums: {1.4, 0.9}, KindColumns: {1.4, 0.9}, KindScatter: {0, 1},
}

// foldStart is the time of folds of all elements in launches: scratch memory is cleared before the
// launch, and the last block folds the results of the others.
const foldStart = 1.4
