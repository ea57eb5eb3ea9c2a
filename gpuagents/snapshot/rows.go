package snapshot

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// slots is a range of n groups in a page or a file.
type slots struct{ first, n int }

func rowsPerGroup(v kernels.Var, agents int) int {
	if v.Group {
		return 1
	}
	return agents
}

func rowBytes(v kernels.Var) int { return v.Width * v.Elem.Bytes() }

// columns are the bytes of some slots of a variable in a page: count columns of n bytes, stride
// bytes apart, the first at offset at. A variable whose rows are contiguous has one column with all
// elements.
type columns struct{ at, n, count, stride int }

func columnsOf(l *kernels.Layout, v int, s slots) columns {
	of := l.Vars[v]
	size := rowsPerGroup(of, l.Agents) * of.Elem.Bytes() // size of a slot in one column
	count := of.Width
	if of.Together {
		size, count = size*of.Width, 1
	}
	return columns{int(l.Offsets[v]) + s.first*size, s.n * size, count, l.Slots * size}
}

// extract copies the rows of a variable out of a page, one after the other. rows has exactly their
// length. page and rows are aligned to eight bytes.
func extract(l *kernels.Layout, v int, s slots, page, rows []byte) { move(l, v, s, page, rows, false) }

func insert(l *kernels.Layout, v int, s slots, page, rows []byte) { move(l, v, s, page, rows, true) }

// move copies between a page and rows; with back it copies into the page.
func move(l *kernels.Layout, v int, s slots, page, rows []byte, back bool) {
	p := columnsOf(l, v, s)
	if p.count == 1 {
		if stretch := page[p.at:][:p.n]; back {
			copy(stretch, rows)
		} else {
			copy(rows, stretch)
		}
		return
	}
	switch l.Vars[v].Elem.Bytes() {
	case 1:
		transpose(p, page, rows, 1, back)
	case 2:
		transpose(p, device.Of[uint16](page), device.Of[uint16](rows), 2, back)
	case 4:
		transpose(p, device.Of[uint32](page), device.Of[uint32](rows), 4, back)
	default:
		transpose(p, device.Of[uint64](page), device.Of[uint64](rows), 8, back)
	}
}

// blockRows is the number of rows that are moved at a time: their columns stay in the first cache,
// and every line of memory is touched once.
const blockRows = 64

// transpose copies columns of a page to rows, with back in the other direction. bytes is the size
// of T.
func transpose[T any](p columns, page, rows []T, bytes int, back bool) {
	at, n, stride, width := p.at/bytes, p.n/bytes, p.stride/bytes, p.count
	for first := 0; first < n; first += blockRows {
		last := min(first+blockRows, n)
		for c := range width {
			column, to := page[at+c*stride:][first:last], rows[first*width+c:]
			if back {
				for i := range column {
					column[i] = to[i*width]
				}
				continue
			}
			for i, x := range column {
				to[i*width] = x
			}
		}
	}
}

func overlay(l *kernels.Layout, s slots, to, from []byte) {
	for v := range l.Vars {
		p := columnsOf(l, v, s)
		for at := p.at; at < p.at+p.count*p.stride; at += p.stride {
			copy(to[at:at+p.n], from[at:at+p.n])
		}
	}
}
