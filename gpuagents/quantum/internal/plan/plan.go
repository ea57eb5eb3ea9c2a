// Package plan cuts a list of gates into passes over tiles of a state vector. A pass reads and
// writes the state once. Gates that commute move together, and a diagonal gate goes into any pass.
package plan

import (
	"math/bits"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// Class tells which elements a matrix may have.
type Class uint8

// The classes of matrices.
const (
	Dense    Class = iota + 1 // any
	Real                      // real ones
	Mixed                     // a real diagonal and others that are imaginary
	Flip                      // no diagonal
	Exchange                  // X
	Diagonal                  // a diagonal
	Phase                     // the first element alone: a factor of the amplitudes of the controls
)

// Gate is a matrix on a qubit with controls. A Phase has no target.
type Gate struct {
	Class  Class
	Target int // not of a Phase
	// Parity is for a Diagonal the mask of further qubits: the last element is for an odd number of
	// ones among them and the target.
	Parity   uint64
	Controls uint64 // mask of qubits that must have a value
	Values   uint64 // the values
	Matrix   circuit.Matrix
	// PerRow has a matrix for each row, in place of Matrix, which stands in a slot.
	PerRow bool
	Slot   uint64
}

// turns returns the mask of the qubit whose basis states the gate mixes.
func (g *Gate) turns() uint64 {
	if g.Class == Diagonal || g.Class == Phase {
		return 0
	}
	return 1 << g.Target
}

// reads returns the mask of the qubits on which the gate is diagonal.
func (g *Gate) reads() uint64 {
	if g.Class == Diagonal {
		return g.Controls | g.Parity | 1<<g.Target
	}
	return g.Controls
}

// Pass is a list of gates that one visit of the tiles applies.
type Pass struct {
	Gates []Gate
	// Tile is the mask of the qubits of a tile. Fixed are controls of all gates outside of it, and
	// Values their values: the pass visits these tiles only.
	Tile, Fixed, Values uint64
	// Fresh makes all qubits 0 before.
	Fresh  bool
	phases []phase
	gates  []uint64 // as words
}

// phase is a part of a pass in which threads hold the same positions.
type phase struct {
	order      uint64
	first, end int // gates
	local      bool
}

// Shape is what a plan knows of a state.
type Shape struct {
	Qubits int // of the index of an amplitude in its row, at least quantumset.MinQubits
	// Single makes a pass of each gate.
	Single bool
	// Fresh makes the first pass visit all tiles, because it begins with all qubits at 0, whatever the
	// memory has.
	Fresh bool
}

// window is the number of gates that the choice of a tile looks at. A longer one makes no fewer
// passes for a QFT of 29 qubits.
const window = 512

// coalesced is the number of lowest qubits that every tile has: a line of 128 bytes of memory.
const coalesced = 4

// Passes cuts gates into passes. The order of gates that do not commute stays. It changes the
// slice.
func (s Shape) Passes(gates []Gate) (all []Pass) {
	for len(gates) > 0 {
		p := Pass{Tile: 1<<coalesced - 1}
		if s.Single {
			p.Gates, p.Tile, gates = gates[:1:1], p.Tile|gates[0].turns(), gates[1:]
		} else {
			near := gates[:min(len(gates), window)]
			p.Tile = grow(near, p.Tile, quantumset.TileQubits, s.inside())
			var left []Gate
			p.Gates, left = take(near, p.Tile)
			// The gates behind the window stay behind the gates that are left.
			gates = gates[len(near)-len(left):]
			copy(gates, left)
		}
		p.Fresh = s.Fresh && all == nil
		s.finish(&p)
		all = append(all, p)
	}
	return all
}

// inside is the mask of the qubits of a row.
func (s Shape) inside() uint64 { return 1<<s.Qubits - 1 }

// grow adds qubits to a set until it has n of them, or all gates can be taken: each time the one
// that lets the most work be done.
func grow(gates []Gate, set uint64, n int, allowed uint64) uint64 {
	for bits.OnesCount64(set) < n {
		best, most := uint64(0), gain(gates, set)
		for left := wanted(gates, set) & allowed; left != 0; left &= left - 1 {
			q := left & -left
			if g := gain(gates, set|q); g > most {
				best, most = q, g
			}
		}
		if best == 0 {
			break
		}
		set |= best
	}
	return set
}

// ready reports whether a gate can go before the gates that stay, whose masks are given, in a part
// whose set has the turned qubit.
func ready(turns, reads, set, turned, read uint64) bool {
	return turns&(turned|read) == 0 && reads&turned == 0 && turns&^set == 0
}

// gain is the work that a set of qubits lets be done: gates that are not diagonal count most.
func gain(gates []Gate, set uint64) (n int) {
	var turned, read uint64
	for i := range gates {
		turns, reads := gates[i].turns(), gates[i].reads()
		switch {
		case !ready(turns, reads, set, turned, read):
			turned, read = turned|turns, read|reads
		case turns != 0:
			n += 16
		default:
			n++
		}
	}
	return n
}

// wanted is the mask of the qubits without which a gate cannot be taken, and nothing else is in its
// way.
func wanted(gates []Gate, set uint64) (all uint64) {
	var turned, read uint64
	for i := range gates {
		turns, reads := gates[i].turns(), gates[i].reads()
		if ready(turns, reads, set, turned, read) {
			continue
		}
		if ready(turns, reads, set|turns, turned, read) {
			all |= turns
		}
		turned, read = turned|turns, read|reads
	}
	return all
}

// take splits gates into the gates that a set of qubits lets be done, and the others, both in
// order.
func take(gates []Gate, set uint64) (taken, left []Gate) {
	var turned, read uint64
	for _, g := range gates {
		if turns, reads := g.turns(), g.reads(); ready(turns, reads, set, turned, read) {
			taken = append(taken, g)
		} else {
			turned, read = turned|turns, read|reads
			left = append(left, g)
		}
	}
	return taken, left
}

// takeTurns is take for the gates that are not diagonal, of a list all of whose targets are held.
func takeTurns(gates []Gate) (taken, left []Gate) {
	var turned, read uint64
	for _, g := range gates {
		turns, reads := g.turns(), g.reads()
		if turns != 0 && ready(turns, reads, turns, turned, read) {
			taken = append(taken, g)
		} else {
			turned, read = turned|turns, read|reads
			left = append(left, g)
		}
	}
	return taken, left
}

// finish fills the tile, fixes the controls of all gates, and makes the phases.
func (s Shape) finish(p *Pass) {
	p.Fixed, p.Values = ^uint64(0), p.Gates[0].Values
	for _, g := range p.Gates {
		p.Fixed &= g.Controls &^ (g.Values ^ p.Values)
	}
	p.Fixed &^= p.Tile
	if p.Fresh {
		p.Fixed = 0
	}
	for _, avoid := range []uint64{p.Fixed, 0} {
		for q := 0; q < max(s.Qubits, quantumset.TileQubits) && bits.OnesCount64(p.Tile) < quantumset.TileQubits; q++ {
			p.Tile |= 1 << q &^ avoid
		}
	}
	p.Fixed &^= p.Tile
	p.Values &= p.Fixed
	s.phases(p)
}

// Tiles is the number of tiles that the pass visits in a buffer of some amplitudes.
func (p *Pass) Tiles(amplitudes uint64) uint64 {
	return amplitudes >> (quantumset.TileQubits + bits.OnesCount64(p.Fixed))
}

// Renumber gives qubits the numbers that suit gates: the lowest numbers, which are in every tile,
// go to qubits that the first pass turns and that are turned most often after it. It returns the
// new number of each qubit. It is for a state that is the same under any numbers.
func (s Shape) Renumber(gates []Gate) []int {
	near := gates[:min(len(gates), window)]
	set := grow(near, 0, quantumset.TileQubits, s.inside())
	_, left := take(near, set)
	var turned [64]int
	for _, g := range left {
		if g.turns() != 0 {
			turned[g.Target]++
		}
	}
	numbers := make([]int, s.Qubits)
	for q := range numbers {
		numbers[q] = q
	}
	for low := range coalesced {
		best := -1
		for q := range numbers {
			if set>>q&1 == 1 && numbers[q] >= low && (best < 0 || turned[q] > turned[best]) {
				best = q
			}
		}
		if best < 0 {
			break
		}
		other := slices.Index(numbers, low)
		numbers[best], numbers[other] = low, numbers[best]
	}
	return numbers
}

// Move gives the qubits of a gate other numbers.
func (g *Gate) Move(numbers []int) {
	g.Target = numbers[g.Target]
	g.Controls, g.Values, g.Parity = moveMask(g.Controls, numbers), moveMask(g.Values, numbers),
		moveMask(g.Parity, numbers)
}

func moveMask(mask uint64, numbers []int) (moved uint64) {
	for ; mask != 0; mask &= mask - 1 {
		moved |= 1 << numbers[bits.TrailingZeros64(mask)]
	}
	return moved
}

// Words returns the pass as the kernel reads it.
func (p *Pass) Words() []uint64 {
	tile := p.TileQubits()
	words := quantumset.AppendHead(nil, quantumset.Head{
		Tile: tile, Fixed: p.Fixed, Values: p.Values, Phases: len(p.phases), Gates: len(p.gates) / quantumset.GateWords,
		Fresh: p.Fresh,
	})
	for _, h := range p.phases {
		words = quantumset.AppendPhase(words, tile, h.order, h.first, h.end, h.local)
	}
	return append(words, p.gates...)
}

// Cost is the work of a pass.
type Cost struct {
	Phases            int
	Bytes, Operations uint64
}

// The float32 operations of a gate: for a pair of held amplitudes by the kind of the gate, for a
// factor and each amplitude that it multiplies, and for what a thread does to read a gate.
const (
	product  = 4
	overhead = 16
)

var pairs = [...]uint64{
	quantumset.GateDense: 16, quantumset.GateReal: 8, quantumset.GateMixed: 8, quantumset.GateFlip: 8,
	quantumset.GateExchange: 2, quantumset.GateTurns: 4, quantumset.GateTable: 2 * product,
	quantumset.GateLookup: 0,
}

// Cost returns the work of a pass over some amplitudes. Operations is for controls outside of the
// tile that hold in half of the tiles each.
func (p *Pass) Cost(amplitudes uint64) Cost {
	amplitudes = p.Tiles(amplitudes) << quantumset.TileQubits
	c := Cost{Phases: len(p.phases), Bytes: 16 * amplitudes}
	if p.Fresh {
		c.Bytes /= 2
	}
	for gates := p.gates; len(gates) > 0; gates = gates[quantumset.GateWords:] {
		head, outside := gates[quantumset.GateHead], gates[quantumset.GateOutside]
		held := uint64(bits.OnesCount64(head >> quantumset.GateMask & (1<<quantumset.Held - 1)))
		n := pairs[head&15] * held / 2
		switch head & 15 {
		case quantumset.GateFactor:
			n = product
		case quantumset.GateTurns:
			targets := bits.OnesCount64(head >> quantumset.GateTurnsOf & (1<<quantumset.HeldQubits - 1))
			n = pairs[head&15] * quantumset.Held / 2 * uint64(targets)
		case quantumset.GateTable:
			gates = gates[quantumset.GateTableWords:]
		case quantumset.GateLookup:
			tables := head >> quantumset.GateTables & 15
			n = tables*(overhead+product) + product*held
			gates = gates[tables*quantumset.GateTableWords:]
		}
		threads := amplitudes / quantumset.Held
		if head&quantumset.GateApply != 0 {
			n += product * held
		} else {
			threads >>= bits.OnesCount64(outside &^ p.Fixed)
		}
		c.Operations += threads * (overhead + n)
	}
	return c
}

// TileQubits returns the qubits of a tile in ascending order.
func (p *Pass) TileQubits() (qubits []int) {
	for left := p.Tile; left != 0; left &= left - 1 {
		qubits = append(qubits, bits.TrailingZeros64(left))
	}
	return qubits
}
