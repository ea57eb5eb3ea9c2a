package plan

import (
	"cmp"
	"maps"
	"math/bits"
	"math/cmplx"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
)

// phases divides the gates of a pass into phases. In the first and in the last phase threads hold
// none of the lowest positions, so that lanes of a warp read and write whole lines of memory. A
// held position is a qubit of a row: amplitudes of one thread have one matrix.
func (s Shape) phases(p *Pass) {
	const coarse = ^uint64(1<<coalesced - 1)
	inside := p.Tile & s.inside()
	left := p.Gates
	for allowed := inside & coarse; p.phases == nil || len(left) > 0; allowed = inside {
		held := grow(left, 0, quantumset.HeldQubits, allowed)
		var taken []Gate
		taken, left = take(left, held)
		s.phase(p, held, allowed, taken)
	}
	for k, last := 0, p.phases[len(p.phases)-1]; k < quantumset.HeldQubits; k++ {
		if last.order>>(4*k)&15 < coalesced {
			s.phase(p, 0, inside&coarse, nil)
			break
		}
	}
}

// phase adds a phase in which threads hold some qubits, and others of allowed if they are too few.
func (s Shape) phase(p *Pass, held, allowed uint64, gates []Gate) {
	w := writer{pass: p, tile: p.Tile, scale: 1, turns: -1}
	w.order = p.order(held, allowed)
	for k := range quantumset.HeldQubits {
		w.held[k] = p.qubit(int(w.order >> (4 * k) & 15))
	}
	for i := range w.table {
		w.table[i] = 1
	}
	first := len(p.gates) / quantumset.GateWords
	// All diagonal gates that can be first, then all others, and so on: a table has many diagonal
	// gates.
	for left := split(gates); len(left) > 0; {
		var some []Gate
		some, left = take(left, 0)
		for i := range some {
			w.gate(&some[i])
		}
		some, left = takeTurns(left)
		for i := range some {
			w.gate(&some[i])
		}
	}
	w.flush(^uint64(0))
	p.phases = append(p.phases, phase{w.order, first, len(p.gates) / quantumset.GateWords, w.local})
}

// qubit returns the qubit of a position.
func (p *Pass) qubit(position int) int {
	left := p.Tile
	for range position {
		left &= left - 1
	}
	return bits.TrailingZeros64(left)
}

// position returns the position of a qubit of the tile.
func (p *Pass) position(qubit int) int { return bits.OnesCount64(p.Tile & (1<<qubit - 1)) }

// order returns the word PhaseOrder of a phase that holds some qubits. Where they are too few,
// others of allowed are held too: first of all the ones that were held, then the ones that lanes
// have. If the held qubits are all of these, they change places within warps. Otherwise the lanes
// of a half warp have the lowest positions if these are not held, and else positions that differ
// modulo 4, so that they use all banks of shared memory.
func (p *Pass) order(held, allowed uint64) (order uint64) {
	before, near := uint64(0), quantumset.HeldQubits+quantumset.LaneQubits
	if len(p.phases) > 0 {
		before = p.phases[len(p.phases)-1].order & (1<<quantumset.PhaseTrades - 1)
		for k := 0; k < near && bits.OnesCount64(held) < quantumset.HeldQubits; k++ {
			held |= 1 << p.qubit(int(before>>(4*k)&15)) & allowed
		}
	}
	for q := 63; bits.OnesCount64(held) < quantumset.HeldQubits; q-- {
		held |= 1 << q & allowed
	}
	if order, ok := p.trades(before, held); ok {
		return order
	}
	n, used := 0, uint64(0)
	add := func(position int) {
		order |= uint64(position) << (4 * n)
		used |= 1 << position
		n++
	}
	for left := held; left != 0; left &= left - 1 {
		add(p.position(bits.TrailingZeros64(left)))
	}
	for residue := range coalesced {
		for position := residue; position < quantumset.TileQubits; position += coalesced {
			if used>>position&1 == 0 {
				add(position)
				break
			}
		}
	}
	for position := range quantumset.TileQubits {
		if used>>position&1 == 0 {
			add(position)
		}
	}
	return order
}

// trades returns the order of a phase that holds some qubits after the phase with the order before,
// if all that were not held have lanes. It reports whether they have. The lowest positions are
// always held or of lanes, so the lanes of a phase that holds none of them have them all.
func (p *Pass) trades(before, held uint64) (order uint64, ok bool) {
	if before == 0 {
		return 0, false
	}
	var gone, lanes []int // nibbles that are held no more, and nibbles of lanes that are held now
	for k := range quantumset.HeldQubits + quantumset.LaneQubits {
		is := held>>p.qubit(int(before>>(4*k)&15))&1 == 1
		switch {
		case k < quantumset.HeldQubits && !is:
			gone = append(gone, k)
		case k >= quantumset.HeldQubits && is:
			lanes = append(lanes, k)
		}
	}
	if len(gone) != len(lanes) {
		return 0, false
	}
	for _, some := range [2][]int{gone, lanes} { // lanes keep positions that differ modulo 4, if they can
		slices.SortFunc(some, func(a, b int) int {
			return cmp.Compare(before>>(4*a)%coalesced, before>>(4*b)%coalesced)
		})
	}
	order = before
	for i, k := range gone {
		lane := lanes[i]
		differ := (before>>(4*k) ^ before>>(4*lane)) & 15
		order ^= differ<<(4*k) | differ<<(4*lane)
		order |= uint64(lane-quantumset.HeldQubits+1) << (quantumset.PhaseTrades + 4*k)
	}
	return order, true
}

// writer writes the gates of a phase as words.
type writer struct {
	pass    *Pass
	tile    uint64
	order   uint64
	held    [quantumset.HeldQubits]int
	waiting []factors
	// table multiplies the held amplitudes in all threads. It waits too, and reads qubits. scale is
	// for all amplitudes.
	table [quantumset.Held]complex128
	reads uint64
	scale complex128
	turns int  // where the last gate of turns is; -1: there is none
	local bool // a gate depends on positions of threads
}

// factors are gates that multiply the same held amplitudes. They wait for each other, because the
// product of the factors costs less than a product for each amplitude.
type factors struct {
	mask  uint64 // of held amplitudes
	reads uint64 // qubits
	words []uint64
	// tables are the products of the gates that depend on a nibble of an index, by nibble as
	// lookups have them.
	tables map[int]*[16]complex128
}

// heldBit returns the place of a qubit among the held ones, -1 if it is not held.
func (w *writer) heldBit(qubit int) int {
	for k, q := range w.held {
		if q == qubit {
			return k
		}
	}
	return -1
}

// Classes that split makes.
const (
	turn Class = iota + Phase + 1
	pivot
)

// splits reports whether a gate can be a turn between two diagonal gates. A turn by nearly nothing,
// or by nearly a half, would lose digits of the diagonal gates.
func (g *Gate) splits() bool {
	return g.Class == Dense && !g.PerRow && g.Controls == 0 &&
		min(cmplx.Abs(g.Matrix[0]), cmplx.Abs(g.Matrix[2])) > 0x1p-10
}

// split makes of each dense gate that splits a diagonal gate, a turn and a diagonal gate. A gate
// that is the only one stays: two tables take longer than its matrix. A turn has its tangent as the
// first element of its matrix, and what multiplies it as the last one.
func split(gates []Gate) (all []Gate) {
	n := 0
	for i := range gates {
		if gates[i].splits() {
			n++
		}
	}
	if n < 2 {
		return gates
	}
	for _, g := range gates {
		if !g.splits() {
			all = append(all, g)
			continue
		}
		c, s := cmplx.Abs(g.Matrix[0]), cmplx.Abs(g.Matrix[2])
		// The matrix is by [1, after] [c -s; s c] [1, before].
		by := g.Matrix[0] / complex(c, 0)
		before, after := -g.Matrix[1]/(by*complex(s, 0)), g.Matrix[2]/(by*complex(s, 0))
		phase := Gate{Class: Phase, Controls: 1 << g.Target, Values: 1 << g.Target}
		phase.Matrix[0] = before
		all = append(all, phase)
		if g.Class, g.Matrix = turn, (circuit.Matrix{complex(s/c, 0), 0, 0, by * complex(c, 0)}); c < s {
			g.Class, g.Matrix = pivot, circuit.Matrix{complex(c/s, 0), 0, 0, by * complex(s, 0)}
		}
		phase.Matrix[0] = after
		all = append(all, g, phase)
	}
	return all
}

// gate writes a gate.
func (w *writer) gate(g *Gate) {
	switch g.Class {
	case Phase:
		w.factor(g, w.words(g, quantumset.GateFactor), 1<<quantumset.Held-1)
		return
	case Diagonal:
		w.diagonal(g)
		return
	}
	w.flush(g.turns())
	if g.Class == turn || g.Class == pivot {
		w.turn(g)
		w.scale *= g.Matrix[3]
		return
	}
	kind := map[Class]uint64{
		Dense: quantumset.GateDense, Real: quantumset.GateReal, Mixed: quantumset.GateMixed,
		Flip: quantumset.GateFlip, Exchange: quantumset.GateExchange,
	}[g.Class]
	words := w.words(g, kind)
	words[quantumset.GateHead] |= uint64(w.heldBit(g.Target))<<4 | w.mask(g)<<quantumset.GateMask
	w.pass.gates = append(w.pass.gates, words...)
}

// turn writes a turn into the gate of turns before it, if it has another target, and else as a
// gate.
func (w *writer) turn(g *Gate) {
	target := w.heldBit(g.Target)
	at := len(w.pass.gates) - quantumset.GateWords
	if w.turns != at || w.pass.gates[at]>>(quantumset.GateTurnsOf+target)&1 == 1 {
		at = len(w.pass.gates)
		w.pass.gates = append(w.pass.gates, make([]uint64, quantumset.GateWords)...)
		w.pass.gates[at], w.turns = quantumset.GateTurns, at
	}
	w.pass.gates[at] |= 1 << (quantumset.GateTurnsOf + target)
	if g.Class == pivot {
		w.pass.gates[at] |= 1 << (quantumset.GatePivotsOf + target)
	}
	tangents := device.Of[float32](device.Bytes(w.pass.gates[at+quantumset.GateMatrix:]))
	tangents[target] = float32(real(g.Matrix[0]))
}

// diagonal writes a diagonal gate: two factors, if held qubits decide which of its elements counts.
func (w *writer) diagonal(g *Gate) {
	words, odd := w.words(g, quantumset.GateFactor), uint64(0) // held amplitudes
	for left := g.Parity | 1<<g.Target; left != 0; left &= left - 1 {
		q := bits.TrailingZeros64(left)
		switch k := w.heldBit(q); {
		case k >= 0:
			odd ^= bitMask(k, true)
		case w.tile>>q&1 == 1:
			w.local = true
			words[quantumset.GateSign] |= 1 << (quantumset.GateSigns + w.pass.position(q))
		default:
			words[quantumset.GateSign] |= 1 << q
		}
		if words[quantumset.GateSign] != 0 {
			words[quantumset.GateHead] |= quantumset.GateSigned
		}
	}
	if odd != 0 {
		other := append([]uint64{}, words...)
		other[quantumset.GateHead] |= 1 << quantumset.GateLast
		w.factor(g, other, odd)
	}
	w.factor(g, words, (1<<quantumset.Held-1)&^odd)
}

// factor lets a gate wait that multiplies the held amplitudes of a mask and of its controls.
func (w *writer) factor(g *Gate, words []uint64, mask uint64) {
	mask &= w.mask(g)
	const threads = (quantumset.TileSize-1)<<quantumset.GateLocal | quantumset.GatePerRow | quantumset.GateFar |
		quantumset.GateSigned
	if words[quantumset.GateHead]&threads == 0 {
		by := g.Matrix[0]
		if words[quantumset.GateHead]>>quantumset.GateLast&1 == 1 {
			by = g.Matrix[3]
		}
		for r := range w.table {
			if mask>>r&1 == 1 {
				w.table[r] *= by
			}
		}
		w.reads |= g.reads()
		return
	}
	var f *factors
	for i := range w.waiting {
		if w.waiting[i].mask == mask {
			f = &w.waiting[i]
		}
	}
	if f == nil {
		w.waiting = append(w.waiting, factors{mask: mask, tables: map[int]*[16]complex128{}})
		f = &w.waiting[len(w.waiting)-1]
	}
	if f.reads |= g.reads(); !f.lookup(g, words) {
		f.words = append(f.words, words...)
	}
}

// lookup puts a gate into a table, if it depends on one nibble of an index. It reports whether it
// has.
func (f *factors) lookup(g *Gate, words []uint64) bool {
	head, sign := words[quantumset.GateHead], uint64(0)
	if head&quantumset.GatePerRow != 0 {
		return false
	}
	if head&quantumset.GateSigned != 0 {
		sign = words[quantumset.GateSign]
	}
	const positions, far = quantumset.TileSize - 1, 1<<quantumset.GateSigns - 1
	outside := [3]uint64{words[quantumset.GateOutside], words[quantumset.GateValue], sign & far}
	local := [3]uint64{
		head >> quantumset.GateLocal & positions, head >> quantumset.GateLocals & positions,
		sign >> quantumset.GateSigns,
	}
	index, first := outside, 0
	if outside[0]|outside[2] == 0 {
		index, first = local, quantumset.LookupLocal
	} else if local[0]|local[2] != 0 {
		return false
	}
	all := index[0] | index[2]
	nibble := bits.TrailingZeros64(all) / 4
	if all>>(4*nibble) > 15 {
		return false
	}
	t := f.tables[first+nibble]
	if t == nil {
		t = &[16]complex128{}
		for i := range t {
			t[i] = 1
		}
		f.tables[first+nibble] = t
	}
	for i := range t {
		at := uint64(i) << (4 * nibble)
		switch {
		case at&index[0] != index[1]:
		case (bits.OnesCount64(at&index[2])+int(head>>quantumset.GateLast&1))%2 == 1:
			t[i] *= g.Matrix[3]
		default:
			t[i] *= g.Matrix[0]
		}
	}
	return true
}

// lookups returns the words of the tables.
func (f *factors) lookups() []uint64 {
	if len(f.tables) == 0 {
		return nil
	}
	words := make([]uint64, quantumset.GateWords)
	words[quantumset.GateHead] = quantumset.GateLookup | f.mask<<quantumset.GateMask |
		uint64(len(f.tables))<<quantumset.GateTables
	for k, nibble := range slices.Sorted(maps.Keys(f.tables)) {
		words[quantumset.GateOutside] |= uint64(nibble) << (4 * k)
		table := make([]uint64, quantumset.GateTableWords)
		numbers := device.Of[float32](device.Bytes(table))
		for i, by := range f.tables[nibble] {
			numbers[2*i], numbers[2*i+1] = float32(real(by)), float32(imag(by))
		}
		words = append(words, table...)
	}
	return words
}

// flush writes the factors that read a qubit of a mask.
func (w *writer) flush(turns uint64) {
	kept := w.waiting[:0]
	for _, f := range w.waiting {
		if f.reads&turns == 0 && turns != ^uint64(0) {
			kept = append(kept, f)
			continue
		}
		w.pass.gates = append(w.pass.gates, f.lookups()...)
		if n := len(f.words); n > 0 {
			f.words[n-quantumset.GateWords] |= f.mask<<quantumset.GateMask | quantumset.GateApply
			w.pass.gates = append(w.pass.gates, f.words...)
		}
	}
	w.waiting = kept
	if w.reads&turns != 0 || turns == ^uint64(0) || cmplx.Abs(w.scale) < 0x1p-20 {
		w.flushTable()
	}
}

// flushTable writes the table as a factor, if all of its numbers but 1 are the same.
func (w *writer) flushTable() {
	var mask uint64
	table := make([]uint64, quantumset.Held) // words, whose alignment suits both types
	numbers := device.Of[float32](device.Bytes(table))
	same, first := true, complex128(1)
	for r := range w.table {
		by := w.table[r] * w.scale
		numbers[2*r], numbers[2*r+1] = float32(real(by)), float32(imag(by))
		w.table[r] = 1
		if by == 1 {
			continue
		}
		if mask == 0 {
			first = by
		}
		mask, same = mask|1<<r, same && by == first
	}
	w.reads, w.scale = 0, 1
	if mask == 0 {
		return
	}
	words := make([]uint64, quantumset.GateWords)
	words[quantumset.GateHead] = quantumset.GateTable | mask<<quantumset.GateMask
	if same {
		words[quantumset.GateHead] ^= quantumset.GateTable ^ quantumset.GateFactor | quantumset.GateApply
		round(device.Of[float32](device.Bytes(words[quantumset.GateMatrix:])), &circuit.Matrix{first})
	} else {
		words = append(words, table...)
	}
	w.pass.gates = append(w.pass.gates, words...)
}

// mask returns the held amplitudes that have the values of the controls.
func (w *writer) mask(g *Gate) uint64 {
	mask := uint64(1<<quantumset.Held - 1)
	for k, q := range w.held {
		if g.Controls>>q&1 == 1 {
			mask &= bitMask(k, g.Values>>q&1 == 1)
		}
	}
	return mask
}

// bitMask returns the held amplitudes in whose index a bit has a value.
func bitMask(bit int, one bool) (mask uint64) {
	for r := range quantumset.Held {
		if r>>bit&1 == 1 == one {
			mask |= 1 << r
		}
	}
	return mask
}

// words returns the words of a gate without its target and the mask of held amplitudes.
func (w *writer) words(g *Gate, kind uint64) []uint64 {
	words := make([]uint64, quantumset.GateWords)
	words[quantumset.GateHead] = kind
	for left := g.Controls & w.tile; left != 0; left &= left - 1 {
		q := bits.TrailingZeros64(left)
		if w.heldBit(q) >= 0 {
			continue
		}
		at := w.pass.position(q)
		w.local = true
		words[quantumset.GateHead] |= 1<<(quantumset.GateLocal+at) | g.Values>>q&1<<(quantumset.GateLocals+at)
	}
	if g.Controls&^w.tile != 0 {
		words[quantumset.GateHead] |= quantumset.GateFar
	}
	words[quantumset.GateOutside] = g.Controls &^ w.tile
	words[quantumset.GateValue] = g.Values &^ w.tile
	if g.PerRow {
		words[quantumset.GateHead] |= quantumset.GatePerRow
		words[quantumset.GateMatrix] = g.Slot
		return words
	}
	round(device.Of[float32](device.Bytes(words[quantumset.GateMatrix:])), &g.Matrix)
	return words
}

// round stores a matrix as eight float32, each rounded once.
func round(to []float32, m *circuit.Matrix) {
	for i, v := range m {
		to[2*i], to[2*i+1] = float32(real(v)), float32(imag(v))
	}
}
