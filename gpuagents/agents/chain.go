package agents

import (
	"slices"

	"github.com/exoswarm/exoswarm/consensus/fusion"
)

// Chain is the sum of a knowledge node whose agents come in the order of their ids, some at a time.
// It adds in the order of fusion.Nodes, and keeps the sum of the open run and one sum a level. The
// zero value is empty.
type Chain struct {
	Rows   int       // rows of the open run
	Run    []float32 // their sum; valid if Rows is above 0
	levels []partial // sums of runs, sums of these sums, and so on
}

type partial struct {
	n   int
	sum []float32
}

// Push adds a sum to a level. A full level is a sum of the next.
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

// Sum closes the open run and returns the sum of the node. A level with a single sum, which
// fusion.Nodes does not have, adds it to +0 and changes no bit.
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
