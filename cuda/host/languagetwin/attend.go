package languagetwin

import (
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/host/twins"
	set "github.com/exoswarm/exoswarm/cuda/kernels/languageset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

func init() {
	twins.Register(set.Attend, attend)
	twins.Register(set.Merge, merge)
}

// leastOf returns the first position that a position sees.
func leastOf(position int, window uint32) int {
	if window == 0 {
		return 0
	}
	return max(0, position-int(window)+1)
}

// attend is the twin of attend.cu.
func attend(b *twins.Block, a *set.AttendBound) {
	heads, head, splits := int(a.Heads), int(a.Head), int(a.Splits)
	pages := newPages(a.Pool, a.Frames, a.FrameBytes, a.Positions, a.Layer, a.KvHeads*a.Head)
	begin, end := b.Part(uint64(a.Count) * uint64(heads) * uint64(splits))
	for i := int(begin); i < int(end); i++ {
		split, h, row := i%splits, i/splits%heads, int(a.FirstRow)+i/splits/heads
		of := a.Rows[set.RowWords*row:][:set.RowWords]
		position := int(of[1])
		from := max(split*set.Split, leastOf(position, a.Window))
		to := min((split+1)*set.Split, position+1)
		if from >= to {
			continue
		}
		query, column := a.Q[(row*heads+h)*head:][:head], h/(heads/int(a.KvHeads))*head
		var likely [set.Split]float32
		largest := float32(0)
		for j := from; j < to; j++ {
			v := float32(lanes.Score(query, pages.at(of[2], j, 0)[column:][:head]) * a.Scale)
			if likely[j%set.Split] = v; j == from || v > largest {
				largest = v
			}
		}
		var sums [32]float32 // of positions 32 apart
		for j := from; j < to; j++ {
			v := fmath.PowerOfE(likely[j%set.Split] - largest)
			likely[j%set.Split] = v
			sums[j%32] += v
		}
		for d := 16; d > 0; d /= 2 {
			for l := range d {
				sums[l] += sums[l+d]
			}
		}
		part := a.Parts[i*(head+set.PartHead):][:head+set.PartHead]
		part[0], part[1] = largest, sums[0]
		clear(part[set.PartHead:])
		for j := from; j < to; j++ {
			lanes.AddScaled(part[set.PartHead:], pages.at(of[2], j, 1)[column:][:head], likely[j%set.Split])
		}
	}
}

// merge is the twin of merge.cu.
func merge(b *twins.Block, a *set.MergeBound) {
	heads, head, splits := int(a.Heads), int(a.Head), int(a.Splits)
	begin, end := b.Part(uint64(a.Count) * uint64(heads))
	for i := int(begin); i < int(end); i++ {
		row := int(a.FirstRow) + i/heads
		position := int(a.Rows[set.RowWords*row+1])
		y := a.Y[(int(a.FirstRow)*heads+i)*head:][:head]
		first := leastOf(position, a.Window) / set.Split
		var largest, sum float32
		for split := first; split <= position/set.Split; split++ {
			part := a.Parts[(i*splits+split)*(head+set.PartHead):][:head+set.PartHead]
			if split == first {
				largest, sum = part[0], part[1]
				copy(y, part[set.PartHead:])
				continue
			}
			most := fmath.Max(part[0], largest)
			before, with := fmath.PowerOfE(largest-most), fmath.PowerOfE(part[0]-most)
			largest, sum = most, fmath.FMA(part[1], with, float32(sum*before))
			for c, v := range part[set.PartHead:] {
				y[c] = fmath.FMA(v, with, float32(y[c]*before))
			}
		}
		for c := range y {
			y[c] /= sum
		}
	}
}
