package expr

import "math"

// cost is what a part takes.
type cost struct {
	Bytes   float64
	ops     float64
	Seconds float64
}

// weights are the instructions of an operation; others have 1.
var weights = map[Op]float64{
	OpSqrt: 12, OpExp: 22, OpLog: 28, OpTanh: 40, OpDiv: 12, OpRem: 20, OpRandom: 80, OpCast: 2, OpFloor: 6, OpMin: 4,
	OpMax: 4, OpGather: 8,
}

// Weight returns the instructions of an operation on one element.
func Weight(o Op) float64 {
	if w, found := weights[o]; found {
		return w
	}
	return 1
}

// length returns the length of a symbol, or a guess of it.
func length(lengths []int64, symbol int) float64 {
	if symbol < len(lengths) && lengths[symbol] >= 0 {
		return float64(lengths[symbol])
	}
	return guess
}

// predict returns the cost of a part.
func predict(m *Model, t *Part, lengths []int64) cost {
	size := func(n *Node) float64 { return length(lengths, n.Lead) * float64(n.Width) * float64(n.Type.Bytes()) }
	elements := length(lengths, t.Lead) * float64(t.Width)
	var c cost
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
		case OpMatMul:
			c.ops += 1.3 * float64(n.Args[0].Width) * count
			continue
		case OpReduce, OpRows:
			count = length(lengths, n.Args[0].Lead) * float64(n.Args[0].Width)
		}
		c.ops += w * count
	}
	for _, n := range t.Roots {
		written += size(n)
	}
	if t.Kind == KindScan {
		c.Bytes *= 2
	}
	rate := m.Read
	if written > 0.1*c.Bytes {
		rate = m.Copy
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
