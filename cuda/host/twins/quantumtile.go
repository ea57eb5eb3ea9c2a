package twins

import (
	"math/bits"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/host/lanes"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
	"github.com/exoswarm/exoswarm/internal/base/fmath"
)

// The bits of the index of an amplitude in a tile: the bits of a thread, and the held bits.
const (
	threadBits  = quantumset.TileQubits - quantumset.HeldQubits
	tileThreads = 1 << threadBits
)

// tileRow has the amplitudes of one held number in all threads.
type tileRow [tileThreads]amplitude

// floats returns a part of a row for package lanes.
func (r *tileRow) floats(first, n int) []float32 {
	return unsafe.Slice(&r[first].re, 2*n)
}

// stateTile is the twin of tile.cu. Between phases it exchanges held bits with bits of threads, and
// gives threads numbers of its own: a phase that holds none of the lowest positions moves whole
// lines of memory.
func stateTile(b *Block, a *quantumset.TileBound) {
	first, end := b.Part(a.Tiles)
	if first == end {
		return
	}
	w := newTileWork(a)
	for t := first; t < end; t++ {
		w.apply(w.base(t))
	}
}

// tileWork is a pass and the memory of a block.
type tileWork struct {
	a             *quantumset.TileBound
	all           []amplitude
	qubits        [quantumset.TileQubits]uint8 // of each position
	taken, values uint64
	phases        []tilePhase
	fresh         bool

	held   [quantumset.Held]tileRow
	factor tileRow
	looked tileRow // the factors of a lookup
}

// tilePhase is a phase. The place of an amplitude is the sum of a place of the thread and of a
// place of the held number, in the tile (near) and in the state (far).
type tilePhase struct {
	trades   []tileTrade
	gates    []tileGate
	rows     [quantumset.Held]uint8 // of tileWork.held, for each held number
	near     [tileThreads]uint16
	far      [tileThreads]uint64
	heldFar  [quantumset.Held]uint64
	straight int // number of threads in a row whose amplitudes are in a row
}

// tileTrade exchanges a bit of the number of a row with a bit of the threads.
type tileTrade struct{ row, thread int }

// tileGate is a gate with the threads in which the controls inside of the tile hold.
type tileGate struct {
	words []uint64
	table []amplitude // of a GateTable or a GateLookup
	runs  []tileRun
}

// tileRun is a number of threads in a row.
type tileRun struct{ first, n int }

// width is the number of amplitudes that package lanes takes at a time, and vectors reports whether
// it can. Tests turn it off.
const width = 4

var vectors = lanes.Available()

func newTileWork(a *quantumset.TileBound) *tileWork {
	w := &tileWork{
		a: a, all: amplitudesOf(a.Amplitudes), taken: a.Pass[quantumset.PassFixed],
		values: a.Pass[quantumset.PassValue], fresh: a.Pass[quantumset.PassFlags]&quantumset.PassFresh != 0,
	}
	for i := range w.qubits {
		w.qubits[i] = uint8(a.Pass[i/6] >> (8 * (i % 6)))
		w.taken |= 1 << w.qubits[i]
	}
	w.phases = make([]tilePhase, uint32(a.Pass[quantumset.PassCounts]))
	phases := a.Pass[quantumset.PassWords+2*(a.Pass[quantumset.PassFlags]>>quantumset.PassRuns&0xff):]
	gates := phases[quantumset.PhaseWords*len(w.phases):]
	var at tileOrder
	for i := range w.phases {
		words := phases[quantumset.PhaseWords*i:]
		from := words[quantumset.PhaseGates] & (quantumset.PhaseLocal - 1)
		to := words[quantumset.PhaseGates] &^ quantumset.PhaseKeeps >> 32
		p := &w.phases[i]
		if i == 0 {
			at.begin(words[quantumset.PhaseOrder])
		} else if p.trades = at.hold(words[quantumset.PhaseOrder]); i+1 == len(w.phases) {
			p.trades = append(p.trades, at.sort()...)
		}
		w.places(p, &at, words[quantumset.PhaseOrder])
		p.setGates(gates[from*quantumset.GateWords : to*quantumset.GateWords])
	}
	return w
}

// places sets the places of a phase.
func (w *tileWork) places(p *tilePhase, at *tileOrder, order uint64) {
	for r := range p.heldFar {
		for k := range quantumset.HeldQubits {
			if position := order >> (4 * k) & 15; r>>k&1 == 1 {
				p.heldFar[r] |= 1 << w.qubits[position]
				p.rows[r] |= 1 << at.find(int(position))
			}
		}
	}
	for v := range p.near {
		for k, position := range at[quantumset.HeldQubits:] {
			if v>>k&1 == 1 {
				p.near[v] |= 1 << position
				p.far[v] |= 1 << w.qubits[position]
			}
		}
	}
	p.straight = 1
	for p.straight < tileThreads && p.far[p.straight] == uint64(p.straight) {
		p.straight *= 2
	}
}

// setGates sets the gates of a phase.
func (p *tilePhase) setGates(words []uint64) {
	const positions = quantumset.TileSize - 1
	for ; len(words) > 0; words = words[quantumset.GateWords:] {
		head := words[quantumset.GateHead]
		g := tileGate{words: words[:quantumset.GateWords]}
		if tables := tablesOf(head); tables > 0 {
			tables *= quantumset.GateTableWords
			g.table = amplitudesOf(device.Of[float32](device.Bytes(words[quantumset.GateWords:][:tables])))
			words = words[tables:]
		}
		mask, values := uint16(head>>quantumset.GateLocal)&positions, uint16(head>>quantumset.GateLocals)&positions
		for v, at := range p.near {
			if at&mask != values {
				continue
			}
			if n := len(g.runs); n > 0 && g.runs[n-1].first+g.runs[n-1].n == v {
				g.runs[n-1].n++
			} else {
				g.runs = append(g.runs, tileRun{v, 1})
			}
		}
		p.gates = append(p.gates, g)
	}
}

// tablesOf returns the number of tables behind a gate.
func tablesOf(head uint64) int {
	switch head & 15 {
	case quantumset.GateTable:
		return 1
	case quantumset.GateLookup:
		return int(head >> quantumset.GateTables & 15)
	}
	return 0
}

// tileOrder has the position of each bit of an index: the bits of the row, and then the bits of the
// thread.
type tileOrder [quantumset.TileQubits]int

// begin holds the positions of an order. Threads have the others, the lowest ones first.
func (o *tileOrder) begin(order uint64) {
	held := heldOf(order)
	n := 0
	for position := range quantumset.TileQubits {
		if held>>position&1 == 1 {
			o[n] = position
			n++
		}
	}
	for position := range quantumset.TileQubits {
		if held>>position&1 == 0 {
			o[n] = position
			n++
		}
	}
}

// heldOf returns the mask of the positions that an order holds.
func heldOf(order uint64) (mask uint) {
	for k := range quantumset.HeldQubits {
		mask |= 1 << (order >> (4 * k) & 15)
	}
	return mask
}

// find returns the bit of a position.
func (o *tileOrder) find(position int) int {
	for bit, is := range o {
		if is == position {
			return bit
		}
	}
	panic("a position that the tile does not have")
}

// hold returns the trades after which the positions of an order are held. A low position that goes
// comes back to the bit of threads that it had at first, if that is free.
func (o *tileOrder) hold(order uint64) (all []tileTrade) {
	held := heldOf(order)
	for _, home := range [2]bool{true, false} {
		for thread, position := range o[quantumset.HeldQubits:] {
			if held>>position&1 == 0 {
				continue
			}
			for row, gone := range o[:quantumset.HeldQubits] {
				if held>>gone&1 == 0 && (!home || gone == thread) {
					all = append(all, o.trade(row, thread))
					break
				}
			}
		}
	}
	return all
}

// trade exchanges a bit of the row with a bit of the thread.
func (o *tileOrder) trade(row, thread int) tileTrade {
	o[row], o[quantumset.HeldQubits+thread] = o[quantumset.HeldQubits+thread], o[row]
	return tileTrade{row, thread}
}

// sort returns the trades after which the lowest bits of threads have the lowest positions, where
// these are not held. Each exchange of two bits of threads takes three.
func (o *tileOrder) sort() (all []tileTrade) {
	for position := range 4 {
		if bit := o.find(position) - quantumset.HeldQubits; bit >= 0 && bit != position {
			all = append(all, o.trade(0, bit), o.trade(0, position), o.trade(0, bit))
		}
	}
	return all
}

// base returns the index of the first amplitude of a tile.
func (w *tileWork) base(tile uint64) uint64 {
	for left := w.taken; left != 0; left &= left - 1 {
		below := left&-left - 1
		tile = tile&^below<<1 | tile&below
	}
	return tile | w.values
}

// apply makes the phases of the pass in one tile.
func (w *tileWork) apply(base uint64) {
	for i := range w.phases {
		p := &w.phases[i]
		if i == 0 {
			w.load(p, base)
		}
		for _, t := range p.trades {
			w.trade(t)
		}
		for v := range w.factor {
			w.factor[v] = amplitude{re: 1}
		}
		for k := range p.gates {
			switch g := &p.gates[k]; g.words[quantumset.GateHead] & 15 {
			case quantumset.GateTable:
				w.table(p, g)
			case quantumset.GateTurns:
				w.turns(p, g)
			case quantumset.GateLookup:
				w.lookup(p, g, base)
			default:
				w.gate(p, g, base)
			}
		}
		if i+1 == len(w.phases) {
			w.store(p, base)
		}
	}
}

func (w *tileWork) load(p *tilePhase, base uint64) {
	for r, row := range p.rows {
		to, from := &w.held[row], base+p.heldFar[r]
		switch {
		case w.fresh:
			for v, far := range p.far {
				if to[v] = (amplitude{}); (from+far)&(1<<w.a.Qubits-1) == 0 {
					to[v].re = 1
				}
			}
		case p.straight > 1:
			for v := 0; v < tileThreads; v += p.straight {
				copy(to[v:v+p.straight], w.all[from+p.far[v]:])
			}
		default:
			for v, far := range p.far {
				to[v] = w.all[from+far]
			}
		}
	}
}

func (w *tileWork) store(p *tilePhase, base uint64) {
	for r, row := range p.rows {
		from, to := &w.held[row], base+p.heldFar[r]
		if p.straight > 1 {
			for v := 0; v < tileThreads; v += p.straight {
				copy(w.all[to+p.far[v]:], from[v:v+p.straight])
			}
			continue
		}
		for v, far := range p.far {
			w.all[to+far] = from[v]
		}
	}
}

// trade exchanges a bit of the rows with a bit of the threads.
func (w *tileWork) trade(t tileTrade) {
	bit := 1 << t.thread
	for r := range w.held {
		if r>>t.row&1 == 1 {
			continue
		}
		a, b := &w.held[r], &w.held[r|1<<t.row]
		if vectors {
			lanes.Trade(a.floats(0, tileThreads), b.floats(0, tileThreads), t.thread)
			continue
		}
		for v := range tileThreads {
			if v&bit == 0 {
				a[v|bit], b[v] = b[v], a[v|bit]
			}
		}
	}
}

// table multiplies the held amplitudes of the mask of a gate by numbers.
func (w *tileWork) table(p *tilePhase, g *tileGate) {
	for r := range quantumset.Held {
		if g.words[quantumset.GateHead]>>(quantumset.GateMask+r)&1 == 1 {
			scale(&w.held[p.rows[r]], g.table[r])
		}
	}
}

// lookup multiplies held amplitudes by products of numbers that are looked up.
func (w *tileWork) lookup(p *tilePhase, g *tileGate, base uint64) {
	head, nibbles, by := g.words[quantumset.GateHead], g.words[quantumset.GateOutside], &w.looked
	for k := range tablesOf(head) {
		table := (*[16]amplitude)(g.table[16*k:])
		nibble := int(nibbles >> (4 * k) & 15)
		for v := range by {
			at := base >> (4 * nibble)
			if nibble >= quantumset.LookupLocal {
				at = uint64(p.near[v] >> (4 * (nibble - quantumset.LookupLocal)))
			} else if v > 0 { // as the first one
				by[v] = by[0]
				continue
			}
			if k == 0 {
				by[v] = table[at&15]
			} else {
				by[v] = times(table[at&15], by[v])
			}
		}
	}
	w.multiply(p, uint32(head>>quantumset.GateMask)&(1<<quantumset.Held-1), by)
}

// scale multiplies a row by a number.
func scale(row *tileRow, by amplitude) {
	if vectors {
		lanes.Scale(row.floats(0, tileThreads), by.re, by.im)
		return
	}
	for v := range row {
		row[v] = times(by, row[v])
	}
}

// gate applies a gate to the held amplitudes of the threads in which its controls hold.
func (w *tileWork) gate(p *tilePhase, g *tileGate, base uint64) {
	head := g.words[quantumset.GateHead]
	here := head&quantumset.GateFar == 0 || base&g.words[quantumset.GateOutside] == g.words[quantumset.GateValue]
	switch {
	case !here:
	case head&quantumset.GatePerRow == 0:
		m := amplitudesOf(device.Of[float32](device.Bytes(g.words[quantumset.GateMatrix:])))
		for _, run := range g.runs {
			w.matrix(g.words, p, base, run, (*[4]amplitude)(m))
		}
	default:
		for _, run := range g.runs { // the threads of one row are in a row, or each is alone
			for run.n > 0 {
				row, n := (base+p.far[run.first])>>w.a.Qubits, 1
				for n < run.n && (base+p.far[run.first+n])>>w.a.Qubits == row {
					n++
				}
				m := amplitudesOf(w.a.Matrices[8*(g.words[quantumset.GateMatrix]*w.a.Rows+row):][:8])
				w.matrix(g.words, p, base, tileRun{run.first, n}, (*[4]amplitude)(m))
				run.first, run.n = run.first+n, run.n-n
			}
		}
	}
	if head&quantumset.GateApply != 0 {
		w.multiply(p, uint32(head>>quantumset.GateMask)&(1<<quantumset.Held-1), &w.factor)
		for v := range w.factor {
			w.factor[v] = amplitude{re: 1}
		}
	}
}

// matrix applies a matrix in some threads: to a factor, or to the pairs of the mask.
func (w *tileWork) matrix(gate []uint64, p *tilePhase, base uint64, in tileRun, m *[4]amplitude) {
	head, sign := gate[quantumset.GateHead], gate[quantumset.GateSign]
	if head&quantumset.GateSigned == 0 {
		sign = 0
	}
	if head&15 == quantumset.GateFactor {
		ones := bits.OnesCount64(base&sign&(1<<quantumset.GateSigns-1)) + int(head>>quantumset.GateLast&1)
		for v := in.first; v < in.first+in.n; v++ {
			by := m[0]
			if (ones+bits.OnesCount16(p.near[v]&uint16(sign>>quantumset.GateSigns)))%2 == 1 {
				by = m[3]
			}
			w.factor[v] = times(by, w.factor[v])
		}
		return
	}
	target, mask := head>>4&3, uint32(head>>quantumset.GateMask)
	w.pairs(p, head&15, target, mask, in, m)
}

// pivotKind is the kind of pairs of a pivot, whose tangent is the first element of the matrix.
const pivotKind = quantumset.GateTurns

// turns applies a gate of turns. A product by 1 is exact, so a turn is a real matrix.
func (w *tileWork) turns(p *tilePhase, g *tileGate) {
	for target, t := range device.Of[float32](device.Bytes(g.words[quantumset.GateMatrix:]))[:quantumset.HeldQubits] {
		head := g.words[quantumset.GateHead]
		if head>>(quantumset.GateTurnsOf+target)&1 == 0 {
			continue
		}
		kind, m := uint64(quantumset.GateReal), [4]amplitude{{re: 1}, {re: -t}, {re: t}, {re: 1}}
		if head>>(quantumset.GatePivotsOf+target)&1 == 1 {
			kind, m[0].re = pivotKind, t
		}
		w.pairs(p, kind, uint64(target), ^uint32(0), tileRun{0, tileThreads}, &m)
	}
}

// pairs applies a matrix to the pairs of a mask of held numbers.
func (w *tileWork) pairs(p *tilePhase, kind, target uint64, mask uint32, in tileRun, m *[4]amplitude) {
	for left := mask & (1<<quantumset.Held - 1); left != 0; left &= left - 1 {
		if r := bits.TrailingZeros32(left); r>>target&1 == 0 {
			a, b := &w.held[p.rows[r]], &w.held[p.rows[r|1<<target]]
			first, n := in.first, in.n
			if first%width == 0 && n >= width && vectors {
				n &^= width - 1
				manyPairs(kind, m, a.floats(first, n), b.floats(first, n))
				first, n = first+n, in.n-n
			}
			pairs(kind, m, a[first:first+n], b[first:first+n])
		}
	}
}

// multiply multiplies the held amplitudes of a mask by factors, but for factors of 1.
func (w *tileWork) multiply(p *tilePhase, mask uint32, by *tileRow) {
	for ; mask != 0; mask &= mask - 1 {
		held := &w.held[p.rows[bits.TrailingZeros32(mask)]]
		if vectors {
			lanes.Multiply(held.floats(0, tileThreads), by.floats(0, tileThreads))
			continue
		}
		for v, f := range by {
			if f.re != 1 || f.im != 0 {
				held[v] = times(f, held[v])
			}
		}
	}
}

// manyPairs is pairs by package lanes.
func manyPairs(kind uint64, m *[4]amplitude, a, b []float32) {
	switch kind {
	case quantumset.GateDense:
		lanes.Dense(a, b, (*[8]float32)(unsafe.Pointer(m)))
	case quantumset.GateReal:
		lanes.Real(a, b, &[4]float32{m[0].re, m[1].re, m[2].re, m[3].re})
	case quantumset.GateMixed:
		lanes.Mixed(a, b, &[4]float32{m[0].re, m[1].im, m[2].im, m[3].re})
	case pivotKind:
		lanes.Pivot(a, b, m[0].re)
	default:
		lanes.Exchange(a, b)
		if kind == quantumset.GateFlip {
			lanes.Scale(a, m[1].re, m[1].im)
			lanes.Scale(b, m[2].re, m[2].im)
		}
	}
}

// pairs applies a matrix to pairs of amplitudes.
func pairs(kind uint64, m *[4]amplitude, a, b []amplitude) {
	m0, m1, m2, m3 := m[0], m[1], m[2], m[3]
	for v, x := range a {
		y := b[v]
		switch kind {
		case quantumset.GateDense:
			a[v] = timesPlus(m1, y, times(m0, x))
			b[v] = timesPlus(m3, y, times(m2, x))
		case quantumset.GateReal:
			a[v] = amplitude{
				fmath.FMA(m1.re, y.re, float32(m0.re*x.re)), fmath.FMA(m1.re, y.im, float32(m0.re*x.im)),
			}
			b[v] = amplitude{
				fmath.FMA(m2.re, x.re, float32(m3.re*y.re)), fmath.FMA(m2.re, x.im, float32(m3.re*y.im)),
			}
		case quantumset.GateMixed:
			a[v] = amplitude{
				fmath.FMA(-m1.im, y.im, float32(m0.re*x.re)), fmath.FMA(m1.im, y.re, float32(m0.re*x.im)),
			}
			b[v] = amplitude{
				fmath.FMA(-m2.im, x.im, float32(m3.re*y.re)), fmath.FMA(m2.im, x.re, float32(m3.re*y.im)),
			}
		case pivotKind:
			a[v] = amplitude{fmath.FMA(m0.re, x.re, -y.re), fmath.FMA(m0.re, x.im, -y.im)}
			b[v] = amplitude{fmath.FMA(m0.re, y.re, x.re), fmath.FMA(m0.re, y.im, x.im)}
		case quantumset.GateFlip:
			a[v], b[v] = times(m1, y), times(m2, x)
		case quantumset.GateExchange:
			a[v], b[v] = y, x
		}
	}
}
