package agents

import (
	"slices"

	"github.com/exoswarm/exoswarm/consensus/fusion"
)

// chain is a node whose agents come in their order, some at a time: the order of additions of fusion.Nodes, of which the sum of the open run and
// one sum a level are kept.
type Chain struct {
	Rows   int       // in the open run
	Run    []float32 // their sum, where there are any
	levels []partial // of sums of runs, of sums of those, and so on
}

// partial is a sum of fewer than fusion.RunRows sums.
type partial struct {
	n   int
	sum []float32
}

// push adds a sum to a level; a full one is a sum of the next.
func (c *Chain) Push(level int, sum []float32) {
	if level == len(c.levels) {
		c.levels = append(c.levels, partial{sum: make([]float32, len(sum))})
	}
	p := &c.levels[level]
	for d, v := range sum {
		p.sum[d] += v
	}
	if p.n++; p.n == fusion.RunRows {
		full := slices.Clone(p.sum)
		clear(p.sum)
		p.n = 0
		c.Push(level+1, full)
	}
}

// end is the sum of the node. A level with a single sum, which fusion.Nodes has not, adds it to +0 and changes no bit.
func (c *Chain) Sum() []float32 {
	if c.Rows > 0 {
		c.Push(0, c.Run)
	}
	for level := 0; level < len(c.levels)-1; level++ {
		if p := c.levels[level]; p.n > 0 {
			c.Push(level+1, p.sum)
		}
	}
	if len(c.levels) == 0 {
		return nil
	}
	return c.levels[len(c.levels)-1].sum
}
