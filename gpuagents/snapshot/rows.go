package snapshot

import (
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// slots is a run of groups inside a page.
type slots struct{ first, n int }

// rowsPerGroup is how many rows a group has of a variable.
func rowsPerGroup(v kernels.Var, agents int) int {
	if v.Group {
		return 1
	}
	return agents
}

// rowBytes is the length of a row of a variable.
func rowBytes(v kernels.Var) int { return v.Width * v.Elem.Bytes() }

// pieces calls f for the stretches of a page that a variable of some slots takes: byte at of the page, for n bytes, is column c.
// Of a variable whose rows stand behind one another there is one stretch, of all columns.
func pieces(l *kernels.Layout, v int, s slots, f func(c, at, n int)) {
	of := l.Vars[v]
	size := rowsPerGroup(of, l.Agents) * of.Elem.Bytes() // a slot of one column
	if of.Together || of.Width == 1 {
		size *= of.Width
		f(0, int(l.Offsets[v])+s.first*size, s.n*size)
		return
	}
	for c := range of.Width {
		f(c, int(l.Offsets[v])+(c*l.Slots+s.first)*size, s.n*size)
	}
}

// extract copies the rows of a variable out of a page, one behind the other; insert is its inverse. rows has their length and, as page has,
// the alignment of eight bytes.
func extract(l *kernels.Layout, v int, s slots, page, rows []byte) {
	pieces(l, v, s, func(c, at, n int) {
		if n == len(rows) {
			copy(rows, page[at:at+n])
			return
		}
		spread(l.Vars[v], rows, page[at:at+n], c, false)
	})
}

func insert(l *kernels.Layout, v int, s slots, page, rows []byte) {
	pieces(l, v, s, func(c, at, n int) {
		if n == len(rows) {
			copy(page[at:at+n], rows)
			return
		}
		spread(l.Vars[v], rows, page[at:at+n], c, true)
	})
}

// spread copies a column to or from its places in rows.
func spread(v kernels.Var, rows, column []byte, c int, back bool) {
	switch v.Elem.Bytes() {
	case 1:
		spreadOf(rows, column, v.Width, c, back)
	case 2:
		spreadOf(device.Of[uint16](rows), device.Of[uint16](column), v.Width, c, back)
	case 4:
		spreadOf(device.Of[uint32](rows), device.Of[uint32](column), v.Width, c, back)
	default:
		spreadOf(device.Of[uint64](rows), device.Of[uint64](column), v.Width, c, back)
	}
}

func spreadOf[T any](rows, column []T, width, c int, back bool) {
	if back {
		for i := range column {
			column[i] = rows[i*width+c]
		}
		return
	}
	for i, x := range column {
		rows[i*width+c] = x
	}
}

// overlay copies all variables of some slots from one page to another.
func overlay(l *kernels.Layout, s slots, to, from []byte) {
	for v := range l.Vars {
		pieces(l, v, s, func(_, at, n int) { copy(to[at:at+n], from[at:at+n]) })
	}
}
