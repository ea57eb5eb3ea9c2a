package quantum

import (
	"fmt"
	"math/bits"

	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/internal/plan"
)

// program is a circuit as passes over a state.
type program struct {
	qubits   int // of a row
	segments []segment
	// place is the bit of an index that each qubit is in the end: qubits that are swapped change
	// names.
	place []int
	// reads are the bits that are read in the end, by the bit of an index; quantumset.NoPlace: none.
	reads []uint32
	// measured reports whether the circuit has a measurement.
	measured bool
}

// passes is the number of passes over the state.
func (p *program) passes() (n int) {
	for i := range p.segments {
		n += len(p.segments[i].passes)
	}
	return n
}

// segment is a run of gates, and what is done after them.
type segment struct {
	gates   []gate
	passes  []plan.Pass
	recipes *recipes // of the matrices in slots
	// event is a measurement before the end of the circuit, or a reset; nil in the last segment.
	// target is the bit of an index.
	event  *circuit.Op
	target int
}

// width is the most columns of a segment, and rowBytes the most memory of the columns and matrices
// of a row.
func (p *program) width() (n int) {
	for i := range p.segments {
		n = max(n, p.segments[i].recipes.width())
	}
	return n
}

func (p *program) rowBytes() (n int64) {
	for i := range p.segments {
		n = max(n, p.segments[i].recipes.bytes())
	}
	return n
}

// lowering makes a program.
type lowering struct {
	program
	inputs int
	// last is for each bit of an index one more than the gate of the segment that is the last one on
	// it; 0: there is none. alone is the same if the gate is on no other bit, and else 0.
	last, alone []int
	// turned is for each bit one more than the last gate that is not diagonal on it. diagonals are the
	// known diagonal gates, one more than each.
	turned    []int
	diagonals map[diagonal]int
}

// diagonal is what diagonal gates have in common that can become one.
type diagonal struct {
	class                    plan.Class
	target                   int
	parity, controls, values uint64
}

// diagonal returns the key of a gate, if it is a known diagonal one.
func (g *gate) diagonal() (d diagonal, ok bool) {
	d = diagonal{g.Class, g.Target, g.Parity, g.Controls, g.Values}
	if g.Class == plan.Phase {
		d.target = 0
	}
	return d, g.Class >= plan.Diagonal && !g.PerRow
}

// reads returns the mask of the qubits on which a diagonal gate depends.
func (d *diagonal) reads() uint64 {
	if d.class == plan.Phase {
		return d.controls
	}
	return d.controls | d.parity | 1<<d.target
}

// single makes a pass of each gate, which tests compare with plans.
type lowerOptions struct{ single, fresh bool }

// lower makes the program of a valid circuit on a state in which qubit q is bit place[q] of an
// index of that many qubits.
func lower(c *circuit.Circuit, place []int, qubits int, o lowerOptions) (*program, error) {
	l := lowering{program: program{qubits: qubits, place: append([]int{}, place...)}, inputs: len(c.Inputs)}
	l.last, l.alone, l.turned = make([]int, qubits), make([]int, qubits), make([]int, qubits)
	l.diagonals = map[diagonal]int{}
	l.reads = make([]uint32, qubits)
	for i := range l.reads {
		l.reads[i] = quantumset.NoPlace
	}
	l.segments = []segment{{}}
	final := finals(c)
	for i := range c.Ops {
		op := &c.Ops[i]
		l.measured = l.measured || op.Kind == circuit.Measure
		switch {
		case op.Kind == circuit.Gate:
			if err := l.gate(op); err != nil {
				return nil, fmt.Errorf("%s %d: %w", op.Kind, i, err)
			}
		case op.Kind == circuit.Swap:
			l.swap(op)
		case !final[i]:
			l.event(op)
		}
	}
	for i, op := range c.Ops {
		if final[i] {
			l.reads[l.place[op.Target]] = uint32(op.Bit)
		}
	}
	l.plan(o)
	return &l.program, nil
}

// finals marks the measurements after which nothing depends on their qubit or their bit: they are
// read from the last state.
func finals(c *circuit.Circuit) []bool {
	final := make([]bool, len(c.Ops))
	var qubits, read uint64 // that later operations use
	for i := len(c.Ops) - 1; i >= 0; i-- {
		op := &c.Ops[i]
		if op.Kind == circuit.Measure {
			final[i] = qubits>>op.Target&1 == 0 && read>>op.Bit&1 == 0 && op.If.Count == 0
			read |= 1 << op.Bit
		}
		qubits |= 1 << op.Target
		if op.Kind == circuit.Swap {
			qubits |= 1 << op.Other
		}
		for _, control := range op.Controls {
			qubits |= 1 << control.Qubit
		}
		if op.If.Count > 0 {
			read |= ^uint64(0) >> (64 - op.If.Count) << op.If.First
		}
	}
	return final
}

func (l *lowering) segment() *segment { return &l.segments[len(l.segments)-1] }

// controls returns the masks of controls.
func (l *lowering) controls(op *circuit.Op) (mask, values uint64) {
	for _, control := range op.Controls {
		bit := uint64(1) << l.place[control.Qubit]
		if mask |= bit; !control.Zero {
			values |= bit
		}
	}
	return mask, values
}

func (l *lowering) gate(op *circuit.Op) error {
	mask, values := l.controls(op)
	g, err := newGate(&op.Unitary, l.place[op.Target], mask, values)
	if err != nil {
		return err
	}
	if op.If.Count > 0 {
		g.condition(op.If)
	}
	l.add(g)
	return nil
}

// condition makes the gate one that acts in the rows in which a condition holds.
func (g *gate) condition(c circuit.Condition) {
	if !g.PerRow {
		g.factors = []factor{{matrix: g.Matrix}}
		if g.last {
			g.factors[0].matrix = circuit.Matrix{1, 0, 0, g.Matrix[0]}
		}
	}
	if g.cond, g.PerRow = c, true; g.Class < plan.Diagonal {
		g.Class = plan.Dense
	}
}

// swap gives two qubits each other's places, or with controls exchanges them by gates.
func (l *lowering) swap(op *circuit.Op) {
	if len(op.Controls) == 0 && op.If.Count == 0 {
		l.place[op.Target], l.place[op.Other] = l.place[op.Other], l.place[op.Target]
		return
	}
	a, b := l.place[op.Target], l.place[op.Other]
	mask, values := l.controls(op)
	not := func(target int, controls, values uint64) gate {
		g := gate{Gate: plan.Gate{Target: target, Controls: controls, Values: values}}
		g.set(circuit.Matrix{0, 1, 1, 0})
		return g
	}
	middle := not(a, mask|1<<b, values|1<<b)
	if op.If.Count > 0 {
		middle.condition(op.If)
	}
	l.add(not(b, 1<<a, 1<<a))
	l.add(middle)
	l.add(not(b, 1<<a, 1<<a))
}

// event ends the segment with a measurement or a reset. The next one begins with the collapse.
func (l *lowering) event(op *circuit.Op) {
	s := l.segment()
	s.event, s.target = op, l.place[op.Target]
	clear(l.last)
	clear(l.alone)
	clear(l.turned)
	clear(l.diagonals)
	g := gate{Gate: plan.Gate{Class: plan.Diagonal, Target: s.target, PerRow: true}, collapse: true}
	if op.Kind == circuit.Reset {
		g.Class = plan.Dense
	}
	l.segments = append(l.segments, segment{gates: []gate{g}})
}

// add adds a gate to the segment: into the one before it on its qubit, where that is possible.
func (l *lowering) add(g gate) {
	s := l.segment()
	if g.none() {
		return
	}
	qubits := g.Controls
	if g.Class != plan.Phase {
		qubits |= 1 << g.Target
	}
	single := bits.OnesCount64(qubits) == 1 && g.cond.Count == 0
	if at := l.alone[g.Target]; single && at > 0 && s.gates[at-1].fuse(&g) {
		l.note(at)
		return
	}
	if l.merge(&g) || l.conjugate(&g) {
		return
	}
	g.before = l.last[g.Target]
	s.gates = append(s.gates, g)
	l.note(len(s.gates))
	l.touch(qubits, len(s.gates))
	if single {
		l.alone[g.Target] = len(s.gates)
	}
}

// note keeps what a gate, one less than at, does to its target.
func (l *lowering) note(at int) {
	g := &l.segment().gates[at-1]
	if d, ok := g.diagonal(); ok {
		l.diagonals[d] = at
	} else if g.Class < plan.Diagonal {
		l.turned[g.Target] = at
	}
}

// merge puts a diagonal gate into one of the same qubits before it, if nothing but diagonal gates
// of these qubits is between them. It reports whether it has.
func (l *lowering) merge(g *gate) bool {
	d, ok := g.diagonal()
	at := l.diagonals[d]
	if !ok || at == 0 {
		return false
	}
	to := &l.segment().gates[at-1]
	if was, ok := to.diagonal(); !ok || was != d {
		return false
	}
	for left := d.reads(); left != 0; left &= left - 1 {
		if l.turned[bits.TrailingZeros64(left)] > at {
			return false
		}
	}
	to.Matrix[0], to.Matrix[3] = g.Matrix[0]*to.Matrix[0], g.Matrix[3]*to.Matrix[3]
	return true
}

// touch makes a gate the last one on some qubits.
func (l *lowering) touch(qubits uint64, gate int) {
	for left := qubits; left != 0; left &= left - 1 {
		q := bits.TrailingZeros64(left)
		l.last[q], l.alone[q] = gate, 0
	}
}

// conjugate leaves out a CX and the same CX before it, if there is only a diagonal gate of the
// target between them, which becomes one of the parity of both qubits. It reports whether it has.
func (l *lowering) conjugate(g *gate) bool {
	s, none := l.segment(), gate{}
	at := l.last[g.Target]
	if g.Class != plan.Exchange || g.Controls != g.Values || bits.OnesCount64(g.Controls) != 1 || at == 0 {
		return false
	}
	d := &s.gates[at-1]
	control := bits.TrailingZeros64(g.Controls)
	if d.before == 0 || d.cond.Count > 0 || d.collapse || l.last[control] != d.before {
		return false
	}
	first := &s.gates[d.before-1]
	if first.Class != plan.Exchange || first.Target != g.Target || first.Controls != g.Controls ||
		first.Values != g.Values {
		return false
	}
	switch {
	case d.Class == plan.Diagonal && d.Controls == 0 && d.Target == g.Target:
	case d.Class == plan.Phase && d.Controls == 1<<g.Target:
		d.fromPhase()
	default:
		return false
	}
	d.Parity ^= g.Controls
	d.before = first.before
	none.Class, none.Matrix[0] = plan.Phase, 1
	*first = none
	l.touch(g.Controls|1<<g.Target, at)
	l.note(at)
	return true
}

// fromPhase makes a phase of the target alone a diagonal gate of it.
func (g *gate) fromPhase() {
	if !g.PerRow {
		if f := g.Matrix[0]; g.last {
			g.Matrix = circuit.Matrix{1, 0, 0, f}
		} else {
			g.Matrix = circuit.Matrix{f, 0, 0, 1}
		}
	}
	g.Class, g.last, g.Controls, g.Values = plan.Diagonal, false, 0, 0
}

// plan cuts the segments into passes.
func (l *lowering) plan(o lowerOptions) {
	shape := plan.Shape{Qubits: l.qubits, Single: o.single, Fresh: o.fresh}
	for i := range l.segments {
		s := &l.segments[i]
		gates := make([]plan.Gate, 0, len(s.gates))
		var slots []*gate
		for k := range s.gates {
			if g := &s.gates[k]; !g.none() {
				if g.PerRow {
					g.Slot = uint64(len(slots))
					slots = append(slots, g)
				}
				gates = append(gates, g.Gate)
			}
		}
		if i == 0 && o.fresh {
			l.renumber(shape, gates)
			if len(gates) == 0 { // a pass makes the state
				gates = append(gates, plan.Gate{Class: plan.Phase, Matrix: circuit.Matrix{1}})
			}
		}
		s.recipes = newRecipes(slots, l.inputs)
		s.passes = shape.Passes(gates)
		shape.Fresh = false
	}
}

// renumber gives the qubits of a state that is not made yet other places.
func (l *lowering) renumber(shape plan.Shape, first []plan.Gate) {
	if l.qubits <= quantumset.TileQubits || shape.Single {
		return
	}
	numbers := shape.Renumber(first)
	for i := range first {
		first[i].Move(numbers)
	}
	for i := range l.segments {
		s := &l.segments[i]
		if s.target = numbers[s.target]; i > 0 {
			for k := range s.gates {
				s.gates[k].Move(numbers)
			}
		}
	}
	reads := l.reads
	l.reads = make([]uint32, len(reads))
	for q, bit := range reads {
		l.reads[numbers[q]] = bit
	}
	for q, place := range l.place {
		l.place[q] = numbers[place]
	}
}
