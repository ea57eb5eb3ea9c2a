package expr

import "math"

// Model predicts the time of a kernel. Times are in seconds, rates in bytes or operations a second.
type Model struct {
	Launch float64 // of one kernel, when others are before it in the stream
	Read   float64 // of memory that is only read
	Copy   float64 // of memory that is read and written
	Cache  float64 // of memory that the last-level cache holds
	L2     float64 // bytes of that cache
	Ops    float64 // float operations
	Gemm   float64 // float operations of a large product of f32
}

// defaultModel has the rates of one H200. A device that is measured has its own.
var defaultModel = Model{
	Launch: 2.5e-6, Read: 4.2e12, Copy: 4.0e12, Cache: 8e12, L2: 50e6, Ops: 18e12, Gemm: 45e12,
}

// cost is what a part takes.
type cost struct {
	bytes   float64
	ops     float64
	seconds float64
}

// weights are the instructions of an operation; others have 1.
var weights = map[op]float64{
	opSqrt: 12, opExp: 22, opLog: 28, opTanh: 40, opDiv: 12, opRem: 20, opRandom: 80, opCast: 2, opFloor: 6, opMin: 4,
	opMax: 4, opGather: 8,
}

// guess is the length that plans are made for when the length of a filter is not known.
const guess = 1 << 20

func length(lengths []int64, symbol int) float64 {
	if symbol < len(lengths) && lengths[symbol] >= 0 {
		return float64(lengths[symbol])
	}
	return guess
}

// predict returns the cost of a part.
func (m *Model) predict(t *part, lengths []int64) cost {
	size := func(n *node) float64 { return length(lengths, n.lead) * float64(n.width) * float64(n.typ.Bytes()) }
	elements := length(lengths, t.lead) * float64(t.width)
	var c cost
	var written float64
	if t.kind == kindGemm {
		n := t.roots[0]
		c.bytes = size(n) + size(n.args[0]) + size(n.args[1])
		c.seconds = m.product(int64(length(lengths, n.lead)), n.args[0].width, n.width)
		return c
	}
	for _, n := range t.reads {
		c.bytes += size(n)
	}
	for _, n := range t.inside {
		w, found := weights[n.op]
		if !found {
			w = 1
		}
		count := elements
		if n.scalar() {
			count = 1
		} else if n.lead == t.lead {
			count = length(lengths, n.lead) * float64(n.width)
		}
		switch n.op {
		case opMatMul:
			c.ops += 1.3 * float64(n.args[0].width) * count
			continue
		case opReduce, opRows:
			count = length(lengths, n.args[0].lead) * float64(n.args[0].width)
		}
		c.ops += w * count
	}
	for _, n := range t.roots {
		written += size(n)
	}
	if t.kind == kindScan {
		c.bytes *= 2
	}
	rate := m.Read
	if written > 0.1*c.bytes {
		rate = m.Copy
	}
	c.bytes += written
	if c.bytes < m.L2 {
		rate = m.Cache
	}
	memory := c.bytes / rate
	// A small launch does not have enough loads in flight: at most so many bytes a microsecond.
	compute := c.seconds + c.ops/m.Ops
	c.seconds = m.Launch + memory + compute - 0.95*math.Min(memory, compute)
	if t.kind == kindCompact {
		c.seconds += 2 * m.Launch
	}
	return c
}
