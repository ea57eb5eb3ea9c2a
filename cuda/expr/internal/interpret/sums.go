package interpret

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/expr/ir"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// sumRuns adds up the sums of runs in the order of ir.RunRows. all has a row of width elements for
// each run, whose memory it may use.
func sumRuns(all []float32, width int64) []float32 {
	for int64(len(all)) > width {
		var next []float32
		for len(all) > 0 {
			run := all[:min(int64(len(all)), ir.RunRows*width)]
			all = all[len(run):]
			sum := make([]float32, width)
			for i, x := range run {
				sum[int64(i)%width] += x
			}
			next = append(next, sum...)
		}
		all = next
	}
	if len(all) == 0 {
		return make([]float32, width)
	}
	return all
}

// sums calls f for each run of rows, which it adds into a row of width elements of 0, and returns
// the sum of all runs in registers' form.
func (m *machine) sums(rows, width int64, f func(from, to int64, sum []float32)) []uint32 {
	all := make([]float32, (rows+ir.RunRows-1)/ir.RunRows*width)
	m.blocks(rows, ir.RunRows, func(from, to int64) {
		at := from / ir.RunRows * width
		f(from, to, all[at:at+width])
	})
	return append([]uint32{}, device.Of[uint32](device.Bytes(sumRuns(all, width)))...)
}

// floats returns the elements of a node of rows, in a block of whole rows.
func (m *machine) floats(n *ir.Node, from, to int64) []float32 {
	return device.Of[float32](device.Bytes(m.block(n.Width, from*n.Width, to*n.Width).value(n)))
}

// outer adds up the products of the elements of each row of two values. Larger products are sums of
// rounded products, in order: on a device the library computes them.
func (m *machine) outer(n *ir.Node) []uint32 {
	a, b := n.Args[0], n.Args[1]
	rows, inner, width := m.lengths[a.Lead], a.Width, n.Width
	small := n.SmallOuter()
	return m.sums(rows, inner*width, func(from, to int64, sum []float32) {
		x, g := m.floats(a, from, to), m.floats(b, from, to)
		for row := range to - from {
			for i := range inner {
				left, line := x[row*inner+i], sum[i*width:(i+1)*width]
				for j, right := range g[row*width : (row+1)*width] {
					if small {
						line[j] = fmath.FMA(left, right, line[j])
					} else {
						line[j] += float32(left * right)
					}
				}
			}
		}
	})
}

// columns adds up the rows of a value.
func (m *machine) columns(n *ir.Node) []uint32 {
	of := n.Args[0]
	return m.sums(m.lengths[of.Lead], n.Width, func(from, to int64, sum []float32) {
		for i, x := range m.floats(of, from, to) {
			sum[int64(i)%n.Width] += x
		}
	})
}

// scatter adds up the elements of each index. An index beyond an end is the index of that end.
func (m *machine) scatter(n *ir.Node) []uint32 {
	of, index := n.Args[0], n.Args[1]
	v, at := device.Of[float32](device.Bytes(m.whole(of))), m.whole(index)
	members := make([][]float32, m.lengths[n.Lead])
	for i, x := range v {
		if len(members) > 0 {
			j := nearest(index.Type, at[i], len(members))
			members[j] = append(members[j], x)
		}
	}
	out := make([]float32, len(members))
	for j, all := range members {
		if m.ctx.Err() != nil {
			break
		}
		// The sum of one element is that element, but +0 for -0.
		out[j] = 0 + sumRuns(all, 1)[0]
	}
	return append([]uint32{}, device.Of[uint32](device.Bytes(out))...)
}

// nearest returns the place in a table of n elements, n >= 1, that an index means.
func nearest(t ir.Type, index uint32, n int) int64 {
	j := int64(index)
	if t == ir.I32 {
		j = int64(int32(index))
	}
	return max(0, min(j, int64(n-1)))
}
