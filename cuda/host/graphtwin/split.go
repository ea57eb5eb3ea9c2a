package graphtwin

import (
	"github.com/exoswarm/exoswarm/cuda/host/twin"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

func init() {
	twin.Raw(graphset.Count, count)
	twin.Raw(graphset.Split, split)
}

// count is the twin of count.cu.
func count(b *twin.Block) {
	columns, all := twin.Mem[uint32](b, 0), &rows{offsets: twin.Mem[uint64](b, 1), degree: uint64(b.Uint32(2))}
	low, size, lengths := b.Uint32(4), b.Uint32(5), twin.Mem[uint32](b, 6)
	first, end := b.Part(uint64(b.Uint32(3)))
	for row := uint32(first); row < uint32(end); row++ {
		lengths[row] = 0
		from, to := all.of(row)
		for _, other := range columns[from:to] {
			if other-low < size {
				lengths[row]++
			}
		}
	}
}

// split is the twin of split.cu: it goes from row to row, and from link to link.
func split(b *twin.Block) {
	columns, weights, delays := twin.Mem[uint32](b, 0), twin.Mem[int32](b, 1), twin.Mem[byte](b, 2)
	all := &rows{offsets: twin.Mem[uint64](b, 3), degree: uint64(b.Uint32(4))}
	weighted, delayed, listed := b.Uint32(5) != 0, b.Uint32(6) != 0, b.Uint32(7) != 0
	draws := &drawn{least: b.Uint32(8), span: b.Uint32(9), key: [2]uint32{b.Uint32(10), b.Uint32(11)}}
	firstRow, low, size, rest := b.Uint32(12), b.Uint32(14), b.Uint32(15), b.Uint32(16) != 0
	places, toColumns, toWeights, toDelays := twin.Mem[uint32](b, 17), twin.Mem[uint32](b, 18), twin.Mem[int32](b, 19),
		twin.Mem[byte](b, 20)
	first, end := b.Part(uint64(b.Uint32(13)))
	for row := first; row < end; row++ {
		id := firstRow + uint32(row)
		from, to := all.of(id)
		next, behind := uint64(places[row]), uint64(places[row])+to-from
		for at := from; at < to; at++ {
			place := next
			if columns[at]-low < size {
				next++
			} else if rest {
				behind--
				place = behind
			} else {
				continue
			}
			if toColumns[place] = columns[at] - low; weighted {
				toWeights[place] = weights[at]
			}
			switch {
			case delayed && listed:
				toDelays[place] = delays[at]
			case delayed:
				toDelays[place] = byte(draws.of(id, at-from))
			}
		}
	}
}
