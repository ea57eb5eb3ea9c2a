package lanes

import (
	"math"
	"unsafe"
)

//go:generate go run ./internal/stepgen

// A Group steps the agents of a group by an observation; see celltwin. Its rows have a number for
// each agent, and its views are what an agent sees of the observation. One goroutine uses it.
type Group struct {
	steps *steps
	rows  []unsafe.Pointer // of the first agent
	from  []unsafe.Pointer // of the first agent of a call
	view  []wideVector     // if all agents have the same
	table []wideVector
	call  groupCall
}

// steps are the routines of a cell, which internal/stepgen writes.
type steps struct {
	rows, views, arguments int
	constants              []uint32 // behind the arguments in the table
	narrow, wide           func(*groupCall)
}

// wideVector is a constant, once for each lane of the widest register.
type wideVector [16]uint32

func (v *wideVector) set(word uint32) {
	for k := range v {
		v[k] = word
	}
}

// groupCall has the arguments of a routine. Their places are known to stepgen.
type groupCall struct {
	table unsafe.Pointer    // 0
	rows  unsafe.Pointer    // 8
	bytes int               // 16, of a row
	step  int               // 24, from the view of a block of agents to the next
	views [4]unsafe.Pointer // 32
}

func newGroup(s *steps) *Group {
	g := &Group{
		steps: s, rows: make([]unsafe.Pointer, s.rows), from: make([]unsafe.Pointer, s.rows),
		view: make([]wideVector, s.views), table: make([]wideVector, s.arguments+len(s.constants)),
	}
	for i, word := range s.constants {
		g.table[s.arguments+i].set(word)
	}
	return g
}

// Float sets a row of float32, which Step reads or writes until the next call. It is as long as the
// group has agents.
func (g *Group) Float(row int, values []float32) {
	g.rows[row] = unsafe.Pointer(unsafe.SliceData(values))
}

// Word is Float for a row of uint32.
func (g *Group) Word(row int, values []uint32) {
	g.rows[row] = unsafe.Pointer(unsafe.SliceData(values))
}

// Step steps the first of n agents. arguments are the arguments of the cell. A view has an element
// for each agent, or all views have one element for all agents. Step returns the number of stepped
// agents: a multiple of 8, and 0 where the processor lacks the instructions. Other agents do not
// change.
func (g *Group) Step(agents int, arguments []float32, views [][]float32) int {
	if !Available() {
		return 0
	}
	for i, v := range arguments[:g.steps.arguments] {
		g.table[i].set(math.Float32bits(v))
	}
	done := 0
	if wide {
		done = g.blocks(0, agents&^15, 16, g.steps.wide, views)
	}
	return g.blocks(done, agents&^7, 8, g.steps.narrow, views)
}

// blocks steps agents from one to another, width of them at a time, and returns the other.
func (g *Group) blocks(from, to, width int, step func(*groupCall), views [][]float32) int {
	if from == to {
		return to
	}
	for i, row := range g.rows {
		g.from[i] = unsafe.Add(row, 4*from)
	}
	c := &g.call
	*c = groupCall{
		table: unsafe.Pointer(unsafe.SliceData(g.table)), rows: unsafe.Pointer(unsafe.SliceData(g.from)),
		bytes: 4 * (to - from),
	}
	for i, v := range views[:g.steps.views] {
		if len(v) == 1 {
			g.view[i].set(math.Float32bits(v[0]))
			c.views[i] = unsafe.Pointer(&g.view[i])
			continue
		}
		c.views[i], c.step = unsafe.Pointer(&v[:to][from]), 4*width
	}
	step(c)
	return to
}
