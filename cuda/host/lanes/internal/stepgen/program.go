package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// An op is an instruction of a program. Its value has a lane for each agent.
type op struct {
	name string
	args []int // values, by the number of their op
	at   int   // of a row, a view or a constant
	by   int   // bits of a shift
}

// Names of ops. The others are the mnemonics of instructions with two sources.
const (
	opRow      = "row"      // reads row at
	opView     = "view"     // reads view at
	opConstant = "constant" // constant at of the table
	opStore    = "store"    // writes its argument to row at
	opShift    = "VPSRLD"
	opToFloat  = "VCVTDQ2PS"
	opToInt    = "VCVTTPS2DQ"
	opKeep     = "keep" // its first argument, or 0 in lanes whose second is greater than the third
)

// A program is a list of ops without jumps: what a step does with a block of agents. Values never
// change, and a row is read before it is written.
type program struct {
	ops       []op
	constants map[uint32]int
	table     []uint32 // the constants after the caller's constants
	callers   int      // constants of the caller
}

func newProgram(callers int) *program {
	return &program{constants: map[uint32]int{}, callers: callers}
}

func (p *program) add(o op) int {
	p.ops = append(p.ops, o)
	return len(p.ops) - 1
}

func (p *program) row(at int) int      { return p.add(op{name: opRow, at: at}) }
func (p *program) view(at int) int     { return p.add(op{name: opView, at: at}) }
func (p *program) argument(at int) int { return p.add(op{name: opConstant, at: at}) }
func (p *program) store(at, v int)     { p.add(op{name: opStore, args: []int{v}, at: at}) }

func (p *program) word(w uint32) int {
	at, ok := p.constants[w]
	if !ok {
		at = p.callers + len(p.table)
		p.constants[w] = at
		p.table = append(p.table, w)
	}
	return p.argument(at)
}

func (p *program) float(v float32) int { return p.word(math.Float32bits(v)) }

func (p *program) two(name string, a, b int) int { return p.add(op{name: name, args: []int{a, b}}) }

func (p *program) sum(a, b int) int     { return p.two("VADDPS", a, b) }
func (p *program) minus(a, b int) int   { return p.two("VSUBPS", a, b) }
func (p *program) product(a, b int) int { return p.two("VMULPS", a, b) }
func (p *program) over(a, b int) int    { return p.two("VDIVPS", a, b) }

// least and most are Min and Max of package fmath: the second argument where the two do not
// compare.
func (p *program) least(a, b int) int { return p.two("VMINPS", a, b) }
func (p *program) most(a, b int) int  { return p.two("VMAXPS", a, b) }

func (p *program) and(a, b int) int { return p.two("VANDPS", a, b) }
func (p *program) xor(a, b int) int { return p.two("VXORPS", a, b) }

func (p *program) abs(a int) int    { return p.and(a, p.word(1<<31-1)) }
func (p *program) negate(a int) int { return p.xor(a, p.word(1<<31)) }

// clamp is Clamp of package fmath.
func (p *program) clamp(x, limit int) int { return p.most(p.negate(limit), p.least(limit, x)) }

func (p *program) clampBy(x int, limit float32) int {
	return p.most(p.float(-limit), p.least(p.float(limit), x))
}

// toward moves a by a part of its distance from b.
func (p *program) toward(a, rate, b int) int { return p.sum(a, p.product(rate, p.minus(b, a))) }

// tanh is Tanh of package fmath.
func (p *program) tanh(x int) int {
	x = p.clampBy(x, 3)
	q := p.product(x, x)
	above := p.product(x, p.sum(q, p.float(27)))
	return p.over(above, p.sum(p.product(q, p.float(9)), p.float(27)))
}

// log2Rough is Log2Rough of package fmath.
func (p *program) log2Rough(x int) int {
	whole := p.add(op{name: opToFloat, args: []int{x}})
	return p.minus(p.product(whole, p.float(1.0/(1<<23))), p.float(127))
}

func (p *program) whole(x int) int { return p.add(op{name: opToInt, args: []int{x}}) }

func (p *program) keep(v, x, limit int) int {
	return p.add(op{name: opKeep, args: []int{v, x, limit}})
}

// wideNames has the instructions of AVX-512F that have another name than in AVX2.
var wideNames = map[string]string{"VANDPS": "VPANDD", "VXORPS": "VPXORD"}

// A writer turns a program into instructions for registers of one size. Where it has too few
// registers, it reads a row again, or keeps a value in the frame.
type writer struct {
	*program
	out       strings.Builder
	register  string // "Y" or "Z"
	registers int
	bytes     int
	wide      bool // AVX-512

	uses    [][]int     // of a value: the ops that use it, in order
	in      map[int]int // register of a value
	free    []int
	slots   map[int]int // place of a value in the frame
	written map[int]bool
	frame   int
}

func (p *program) write(register string, registers, bytes int, wide bool) (text string, frame int) {
	w := &writer{
		program: p, register: register, registers: registers, bytes: bytes, wide: wide,
		uses: make([][]int, len(p.ops)), in: map[int]int{}, slots: map[int]int{}, written: map[int]bool{},
	}
	for i, o := range p.ops {
		for _, a := range o.args {
			w.uses[a] = append(w.uses[a], i)
		}
	}
	for r := registers - 1; r >= 0; r-- {
		w.free = append(w.free, r)
	}
	for i := range p.ops {
		w.op(i)
	}
	return w.out.String(), w.frame
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(&w.out, "\t"+format+"\n", args...) }

func (w *writer) name(r int) string { return fmt.Sprintf("%s%d", w.register, r) }

// next is the next use of a value after op i, or a large number.
func (w *writer) next(v, i int) int {
	for _, u := range w.uses[v] {
		if u >= i {
			return u
		}
	}
	return math.MaxInt
}

// again reports whether a value can be read where it came from.
func (w *writer) again(v int) bool {
	o := w.ops[v]
	return o.name == opConstant || o.name == opView || o.name == opRow && !w.written[o.at]
}

// take returns a register for op i. Registers of the values in held stay.
func (w *writer) take(i int, held []int) int {
	if n := len(w.free); n > 0 {
		r := w.free[n-1]
		w.free = w.free[:n-1]
		return r
	}
	// The value whose next use is the furthest; of several, one that need not be stored.
	victim, furthest := -1, -1
	for v := range w.ops { // in order, so that the text is always the same
		if _, ok := w.in[v]; !ok || slices.Contains(held, v) {
			continue
		}
		far := 2 * min(w.next(v, i), 1<<20)
		if _, stored := w.slots[v]; stored || w.again(v) {
			far++
		}
		if far > furthest {
			victim, furthest = v, far
		}
	}
	r := w.in[victim]
	if _, stored := w.slots[victim]; !stored && !w.again(victim) {
		w.slots[victim] = w.frame
		w.line("VMOVUPS %s, %d(SP)", w.name(r), w.frame)
		w.frame += w.bytes
	}
	delete(w.in, victim)
	return r
}

// address returns where a value that is in no register lies, after it has loaded a pointer to it.
func (w *writer) address(v int) string {
	if at, ok := w.slots[v]; ok {
		return fmt.Sprintf("%d(SP)", at)
	}
	switch o := w.ops[v]; o.name {
	case opConstant:
		return fmt.Sprintf("%d(SI)", o.at*tableBytes)
	case opView:
		w.line("MOVQ %d(AX), R8", viewPointers+8*o.at)
		return "(R8)(BX*1)"
	default:
		w.line("MOVQ %d(DI), R8", 8*o.at)
		return "(R8)(CX*1)"
	}
}

// need returns a register with a value.
func (w *writer) need(v, i int, held []int) int {
	if r, ok := w.in[v]; ok {
		return r
	}
	r := w.take(i, held)
	w.line("VMOVUPS %s, %s", w.address(v), w.name(r))
	w.in[v] = r
	return r
}

// source returns a value as the last source of an instruction: a register, or memory if the value
// is not needed soon.
func (w *writer) source(v, i int, held []int) string {
	if r, ok := w.in[v]; ok {
		return w.name(r)
	}
	if w.ops[v].name == opConstant || w.next(v, i+1) > i+24 {
		return w.address(v)
	}
	return w.name(w.need(v, i, held))
}

// drop frees the registers of values that op i was the last to use.
func (w *writer) drop(i int) {
	for _, a := range w.ops[i].args {
		if r, ok := w.in[a]; ok && w.next(a, i+1) == math.MaxInt {
			delete(w.in, a)
			w.free = append(w.free, r)
		}
	}
}

func (w *writer) op(i int) {
	o := w.ops[i]
	switch o.name {
	case opRow, opView, opConstant: // read at the first use
		return
	case opStore:
		r := w.need(o.args[0], i, o.args)
		w.written[o.at] = true
		for v, of := range w.ops[:i] {
			if of.name == opRow && of.at == o.at && w.next(v, i) != math.MaxInt {
				panic(fmt.Sprintf("row %d is read after it is written", o.at))
			}
		}
		w.line("MOVQ %d(DI), R8", 8*o.at)
		w.line("VMOVUPS %s, (R8)(CX*1)", w.name(r))
		w.drop(i)
		return
	}
	a := w.need(o.args[0], i, o.args)
	if o.name == opKeep {
		w.keep(o, i, a)
		return
	}
	var b string
	if len(o.args) > 1 {
		b = w.source(o.args[1], i, o.args)
	}
	w.drop(i)
	to := w.take(i, o.args)
	switch o.name {
	case opShift:
		w.line("VPSRLD $%d, %s, %s", o.by, w.name(a), w.name(to))
	case opToFloat, opToInt:
		w.line("%s %s, %s", o.name, w.name(a), w.name(to))
	default:
		name := o.name
		if wide := wideNames[name]; w.wide && wide != "" {
			name = wide
		}
		w.line("%s %s, %s, %s", name, b, w.name(a), w.name(to))
	}
	w.in[i] = to
}

// keep compares the second argument with the third, by a predicate that holds also where they do
// not compare, and leaves the lanes of the first where it is not greater.
func (w *writer) keep(o op, i, a int) {
	const notGreater = 0x1A
	x := w.need(o.args[1], i, o.args)
	limit := w.source(o.args[2], i, o.args)
	if w.wide {
		w.line("VCMPPS $%#x, %s, %s, K1", notGreater, limit, w.name(x))
		w.drop(i)
		w.in[i] = w.take(i, o.args)
		w.line("VMOVAPS.Z %s, K1, %s", w.name(a), w.name(w.in[i]))
		return
	}
	mask := w.take(i, o.args)
	w.line("VCMPPS $%#x, %s, %s, %s", notGreater, limit, w.name(x), w.name(mask))
	w.line("VANDPS %s, %s, %s", w.name(mask), w.name(a), w.name(mask))
	w.drop(i)
	w.in[i] = mask
}
