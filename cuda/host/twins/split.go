package twins

import (
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() {
	Register(graphset.Count, countLinks)
	Register(graphset.Split, split)
}

func countLinks(b *Block, a *graphset.CountBound) {
	all := rows{offsets: a.Offsets, degree: uint64(a.Degree)}
	first, end := b.Part(uint64(a.Rows))
	for row := uint32(first); row < uint32(end); row++ {
		a.Lengths[row] = 0
		from, to := all.of(row)
		for _, other := range a.Columns[from:to] {
			if other-a.Low < a.Size {
				a.Lengths[row]++
			}
		}
	}
}

// split is the twin of split.cu: it goes from row to row, and from link to link.
func split(b *Block, a *graphset.SplitBound) {
	all, draws := rows{offsets: a.Offsets, degree: uint64(a.Degree)}, &drawn{DrawnBound: &a.DrawnBound}
	first, end := b.Part(uint64(a.Rows))
	for row := first; row < end; row++ {
		id := a.FirstRow + uint32(row)
		from, to := all.of(id)
		next, behind := uint64(a.Places[row]), uint64(a.Places[row])+to-from
		for at := from; at < to; at++ {
			place := next
			if a.Columns[at]-a.Low < a.Size {
				next++
			} else if a.Rest != 0 {
				behind--
				place = behind
			} else {
				continue
			}
			if a.ToColumns[place] = a.Columns[at] - a.Low; a.Weighted != 0 {
				a.ToWeights[place] = a.Weights[at]
			}
			switch {
			case a.Delayed != 0 && a.Listed != 0:
				a.ToDelays[place] = a.Delays[at]
			case a.Delayed != 0:
				a.ToDelays[place] = byte(draws.of(id, at-from))
			}
		}
	}
}
