package twins

import (
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/kernels/gridset"
)

func init() {
	Register(gridset.LifeRows, life)
	Register(gridset.LifeCells, life)
	Register(gridset.Set, set)
	Register(gridset.Get, get)
}

// grid is the pages of a grid; see gridset.
type grid struct {
	pages     []byte
	frames    []uint32
	pageBytes uint64
	per       uint32 // cells of a page
}

func (g *grid) cell(id uint32) uint64 {
	return uint64(g.frames[id/g.per])*g.pageBytes + uint64(id%g.per)
}

// load copies a row, whose parts may be in several pages.
func (g *grid) load(row []byte, id uint32) {
	g.move(row, id, func(page, part []byte) { copy(part, page) })
}

func (g *grid) store(row []byte, id uint32) {
	g.move(row, id, func(page, part []byte) { copy(page, part) })
}

// move calls f for each part of a row that is in one page, with the part of the page and the part
// of the row.
func (g *grid) move(row []byte, id uint32, f func(page, part []byte)) {
	for len(row) > 0 {
		n := min(len(row), int(g.per-id%g.per))
		f(g.pages[g.cell(id):][:n], row[:n])
		row, id = row[n:], id+uint32(n)
	}
}

// life is the twin of life_rows.cu and life_cells.cu: a generation does not depend on the order in
// which it is made. A block makes some rows. It reads each row once, into its own row with a cell
// before the first and one behind the last.
func life(b *Block, a *gridset.LifeBound) {
	old := grid{a.From, a.FromFrames, a.PageBytes, a.Per}
	made := grid{a.To, a.ToFrames, a.PageBytes, a.Per}
	width, height, periodic := a.Width, a.Height, a.Periodic != 0
	first, end := b.Part(uint64(height))
	if first == end {
		return
	}
	rows := [3][]byte{make([]byte, width+2), make([]byte, width+2), make([]byte, width+2)}
	// read reads row y, which may be one before the first and one behind the last.
	read := func(row []byte, y int64) {
		clear(row)
		if y < 0 || y >= int64(height) {
			if !periodic {
				return
			}
			y = (y + int64(height)) % int64(height)
		}
		old.load(row[1:width+1], uint32(y)*width)
		if periodic {
			row[0], row[width+1] = row[width], row[1]
		}
	}
	read(rows[0], int64(first)-1)
	read(rows[1], int64(first))
	next, columns, living := make([]byte, width), make([]byte, width+2), uint64(0)
	for y := first; y < end; y++ {
		read(rows[2], int64(y)+1)
		above, here, below := rows[0], rows[1], rows[2]
		for x := range columns {
			columns[x] = above[x] + here[x] + below[x]
		}
		for x := range next {
			next[x] = lives[here[x+1]&1][(columns[x]+columns[x+1]+columns[x+2])&15]
			living += uint64(next[x])
		}
		made.store(next, uint32(y)*width)
		rows = [3][]byte{here, below, above}
	}
	if a.Count != 0 {
		atomic.AddUint64(&a.Alive[0], living)
	}
}

// lives has the next state of a cell by its state and the sum of its own and its neighbours'
// states.
var lives = [2][16]byte{0: {3: 1}, 1: {3: 1, 4: 1}}

func set(b *Block, a *gridset.CellsBound) {
	g := grid{a.Pages, a.Frames, a.PageBytes, a.Per}
	first, end := b.Part(uint64(a.N))
	for i := first; i < end; i++ {
		g.pages[g.cell(a.IDs[i])] = a.Values[i]
	}
}

func get(b *Block, a *gridset.CellsBound) {
	g := grid{a.Pages, a.Frames, a.PageBytes, a.Per}
	first, end := b.Part(uint64(a.N))
	for i := first; i < end; i++ {
		a.Values[i] = g.pages[g.cell(a.IDs[i])]
	}
}
