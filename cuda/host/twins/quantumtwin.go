package twins

import (
	"cmp"
	"math/bits"
	"slices"
	"sync/atomic"
	"unsafe"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/quantumset"
)

func init() {
	Register(quantumset.Tile, stateTile)
	Register(quantumset.Weight, stateWeight)
	Register(quantumset.Sample, stateSample)
	Register(quantumset.Expect, stateExpect)
}

// amplitude is a complex number as kernels have it. Go's complex64 may be computed in another order.
type amplitude struct{ re, im float32 }

func times(m, a amplitude) amplitude {
	return amplitude{
		float32(m.re*a.re) - float32(m.im*a.im),
		float32(m.re*a.im) + float32(m.im*a.re),
	}
}

func plus(a, b amplitude) amplitude { return amplitude{a.re + b.re, a.im + b.im} }

// weight returns |a|^2 as an integer of scale quantumset.WeightScale. The squares are exact, and their
// sum is rounded once.
func (a amplitude) weight() uint64 {
	return uint64((float64(a.re)*float64(a.re) + float64(a.im)*float64(a.im)) * quantumset.WeightScale)
}

// tileThreads is the number of sets of held amplitudes of a tile.
const tileThreads = quantumset.TileSize / quantumset.Held

// lanes are numbers of threads, and allLanes are all of them.
type lanes []uint8

var allLanes = func() (all lanes) {
	for v := range tileThreads {
		all = append(all, uint8(v))
	}
	return all
}()

// stateTile is the twin of tile.cu.
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

	tile   [quantumset.TileSize]amplitude
	held   [quantumset.Held][tileThreads]amplitude
	factor [tileThreads]amplitude
	some   [tileThreads]uint8
}

// tilePhase is a phase: the places of the held amplitudes are the sums of a place of the thread and of
// one of the held amplitude, in the tile (near) and in the state (far).
type tilePhase struct {
	gates    []uint64
	near     [tileThreads]uint16
	far      [tileThreads]uint64
	heldNear [quantumset.Held]uint16
	heldFar  [quantumset.Held]uint64
	straight bool // 16 threads in a row have 16 amplitudes in a row
}

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
	gates := a.Pass[quantumset.PassWords+quantumset.PhaseWords*len(w.phases):]
	for i := range w.phases {
		words := a.Pass[quantumset.PassWords+quantumset.PhaseWords*i:]
		from, to := uint32(words[quantumset.PhaseGates]), words[quantumset.PhaseGates]>>32
		p := &w.phases[i]
		p.gates = gates[uint64(from)*quantumset.GateWords : to*quantumset.GateWords]
		w.places(words[quantumset.PhaseOrder], p.heldNear[:], p.heldFar[:])
		w.places(words[quantumset.PhaseOrder]>>(4*quantumset.HeldQubits), p.near[:], p.far[:])
		p.straight = true
		for v, at := range p.far {
			p.straight = p.straight && at == p.far[v&^15]+uint64(v&15)
		}
	}
	return w
}

// places sets the places of indices whose bits are the positions of an order.
func (w *tileWork) places(order uint64, near []uint16, far []uint64) {
	for i := range near {
		for k := 0; i>>k > 0; k++ {
			if position := order >> (4 * k) & 15; i>>k&1 == 1 {
				near[i] |= 1 << position
				far[i] |= 1 << w.qubits[position]
			}
		}
	}
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
		} else {
			for r := range w.held {
				for v, at := range p.near {
					w.held[r][v] = w.tile[(at|p.heldNear[r])%quantumset.TileSize]
				}
			}
		}
		for v := range w.factor {
			w.factor[v] = amplitude{re: 1}
		}
		for gates := p.gates; len(gates) > 0; gates = gates[quantumset.GateWords:] {
			gate, behind := gates[:quantumset.GateWords], gates[quantumset.GateWords:]
			if gate[quantumset.GateHead]&15 != quantumset.GateTable {
				w.gate(gate, p, base)
				continue
			}
			w.table(gate[quantumset.GateHead], behind[:quantumset.GateTableWords])
			gates = gates[quantumset.GateTableWords:]
		}
		if i+1 == len(w.phases) {
			w.store(p, base)
			continue
		}
		for r := range w.held {
			for v, at := range p.near {
				w.tile[(at|p.heldNear[r])%quantumset.TileSize] = w.held[r][v]
			}
		}
	}
}

func (w *tileWork) load(p *tilePhase, base uint64) {
	for r := range w.held {
		to, from := &w.held[r], base+p.heldFar[r]
		switch {
		case w.fresh:
			for v, far := range p.far {
				if to[v] = (amplitude{}); (from+far)&(1<<w.a.Qubits-1) == 0 {
					to[v].re = 1
				}
			}
		case p.straight:
			for v := 0; v < tileThreads; v += 16 {
				*(*[16]amplitude)(to[v:]) = *(*[16]amplitude)(w.all[from+p.far[v]:])
			}
		default:
			for v, far := range p.far {
				to[v] = w.all[from+far]
			}
		}
	}
}

func (w *tileWork) store(p *tilePhase, base uint64) {
	for r := range w.held {
		from, to := &w.held[r], base+p.heldFar[r]
		if p.straight {
			for v := 0; v < tileThreads; v += 16 {
				*(*[16]amplitude)(w.all[to+p.far[v]:]) = *(*[16]amplitude)(from[v:])
			}
			continue
		}
		for v, far := range p.far {
			w.all[to+far] = from[v]
		}
	}
}

// table multiplies the held amplitudes of the mask of a head by numbers.
func (w *tileWork) table(head uint64, numbers []uint64) {
	for r, by := range amplitudesOf(device.Of[float32](device.Bytes(numbers))) {
		if held := &w.held[r]; head>>(quantumset.GateMask+r)&1 == 1 {
			for v := range held {
				held[v] = times(by, held[v])
			}
		}
	}
}

// gate applies a gate to the held amplitudes of the threads in which its controls hold.
func (w *tileWork) gate(gate []uint64, p *tilePhase, base uint64) {
	head := gate[quantumset.GateHead]
	here := head&quantumset.GateFar == 0 || base&gate[quantumset.GateOutside] == gate[quantumset.GateValue]
	if !here && head&quantumset.GateApply == 0 {
		return
	}
	const positions = quantumset.TileSize - 1
	in := lanes{}
	if here {
		in = w.lanes(p, uint16(head>>quantumset.GateLocal)&positions, uint16(head>>quantumset.GateLocals)&positions)
	}
	if head&quantumset.GatePerRow == 0 {
		m := amplitudesOf(device.Of[float32](device.Bytes(gate[quantumset.GateMatrix:])))
		w.matrix(gate, p, base, in, (*[4]amplitude)(m))
	} else {
		for len(in) > 0 { // the lanes of one row are in a row, or each is alone
			row, n := (base+p.far[in[0]])>>w.a.Qubits, 1
			for n < len(in) && (base+p.far[in[n]])>>w.a.Qubits == row {
				n++
			}
			m := amplitudesOf(w.a.Matrices[8*(gate[quantumset.GateMatrix]*w.a.Rows+row):][:8])
			w.matrix(gate, p, base, in[:n], (*[4]amplitude)(m))
			in = in[n:]
		}
	}
	if head&quantumset.GateApply != 0 {
		w.multiply(uint32(head>>quantumset.GateMask) & (1<<quantumset.Held - 1))
	}
}

// lanes returns the threads whose local index has the values of a mask.
func (w *tileWork) lanes(p *tilePhase, mask, values uint16) lanes {
	if mask == 0 && values == 0 {
		return allLanes
	}
	n := 0
	for v, at := range p.near {
		if at&mask == values {
			w.some[n] = uint8(v)
			n++
		}
	}
	return w.some[:n]
}

// matrix applies a matrix in some threads: to a factor, or to the pairs of the mask.
func (w *tileWork) matrix(gate []uint64, p *tilePhase, base uint64, in lanes, m *[4]amplitude) {
	head, sign := gate[quantumset.GateHead], gate[quantumset.GateSign]
	if head&quantumset.GateSigned == 0 {
		sign = 0
	}
	if head&15 == quantumset.GateFactor {
		ones := bits.OnesCount64(base&sign&(1<<quantumset.GateSigns-1)) + int(head>>quantumset.GateLast&1)
		for _, v := range in {
			by := m[0]
			if (ones+bits.OnesCount16(p.near[v]&uint16(sign>>quantumset.GateSigns)))%2 == 1 {
				by = m[3]
			}
			w.factor[v] = times(by, w.factor[v])
		}
		return
	}
	target, mask := head>>4&3, uint32(head>>quantumset.GateMask)
	if kind := head & 15; kind == quantumset.GateTurn || kind == quantumset.GatePivot {
		mask = ^uint32(0)
	}
	for left := mask & (1<<quantumset.Held - 1); left != 0; left &= left - 1 {
		if r := bits.TrailingZeros32(left); r>>target&1 == 0 {
			pairs(head&15, m, in, &w.held[r], &w.held[r|1<<target])
		}
	}
}

// multiply multiplies the held amplitudes of a mask by the factors, which are 1 after it.
func (w *tileWork) multiply(mask uint32) {
	for ; mask != 0; mask &= mask - 1 {
		held := &w.held[bits.TrailingZeros32(mask)]
		for v, f := range w.factor {
			if f.re != 1 || f.im != 0 {
				held[v] = times(f, held[v])
			}
		}
	}
	for v := range w.factor {
		w.factor[v] = amplitude{re: 1}
	}
}

// pairs applies a matrix to pairs of amplitudes of some threads.
func pairs(kind uint64, m *[4]amplitude, in lanes, a, b *[tileThreads]amplitude) {
	m0, m1, m2, m3 := m[0], m[1], m[2], m[3]
	switch kind {
	case quantumset.GateDense:
		for _, v := range in {
			x, y := a[v], b[v]
			a[v] = plus(times(m0, x), times(m1, y))
			b[v] = plus(times(m2, x), times(m3, y))
		}
	case quantumset.GateReal:
		for _, v := range in {
			x, y := a[v], b[v]
			a[v] = amplitude{
				float32(m0.re*x.re) + float32(m1.re*y.re), float32(m0.re*x.im) + float32(m1.re*y.im),
			}
			b[v] = amplitude{
				float32(m2.re*x.re) + float32(m3.re*y.re), float32(m2.re*x.im) + float32(m3.re*y.im),
			}
		}
	case quantumset.GateMixed:
		for _, v := range in {
			x, y := a[v], b[v]
			a[v] = amplitude{
				float32(m0.re*x.re) - float32(m1.im*y.im), float32(m0.re*x.im) + float32(m1.im*y.re),
			}
			b[v] = amplitude{
				float32(m3.re*y.re) - float32(m2.im*x.im), float32(m3.re*y.im) + float32(m2.im*x.re),
			}
		}
	case quantumset.GateTurn:
		for _, v := range in {
			x, y := a[v], b[v]
			a[v] = amplitude{x.re - float32(m0.re*y.re), x.im - float32(m0.re*y.im)}
			b[v] = amplitude{float32(m0.re*x.re) + y.re, float32(m0.re*x.im) + y.im}
		}
	case quantumset.GatePivot:
		for _, v := range in {
			x, y := a[v], b[v]
			a[v] = amplitude{float32(m0.re*x.re) - y.re, float32(m0.re*x.im) - y.im}
			b[v] = amplitude{x.re + float32(m0.re*y.re), x.im + float32(m0.re*y.im)}
		}
	case quantumset.GateFlip:
		for _, v := range in {
			a[v], b[v] = times(m1, b[v]), times(m2, a[v])
		}
	case quantumset.GateExchange:
		for _, v := range in {
			a[v], b[v] = b[v], a[v]
		}
	}
}

// amplitudesOf returns a view of pairs of floats.
func amplitudesOf(floats []float32) []amplitude {
	return unsafe.Slice((*amplitude)(unsafe.Pointer(unsafe.SliceData(floats))), len(floats)/2)
}

// stateWeight is the twin of weight.cu.
func stateWeight(b *Block, a *quantumset.WeightBound) {
	amplitudes := amplitudesOf(a.Amplitudes)
	first, end := b.Part(a.Runs)
	for run := first; run < end; run++ {
		var sum uint64
		at := run * quantumset.RunSize
		for i, v := range amplitudes[at:][:quantumset.RunSize] {
			if (at+uint64(i))&a.Mask == a.Value {
				sum += v.weight()
			}
		}
		a.Sums[run] = sum
		atomic.AddUint64(&a.Totals[run>>a.Group], sum)
	}
}

// stateSample is the twin of sample.cu. It makes the shots of a block in the order of their places, so
// that it adds up a run once for all of its shots.
func stateSample(b *Block, a *quantumset.SampleBound) {
	type draw struct {
		target uint64
		shot   int
	}
	groups := uint64(1) << (a.Qubits - quantumset.MinQubits - a.Group)
	first, end := b.Part(a.Rows * uint64(a.Shots))
	for s := first; s < end; { // the shots of a row
		row := s / uint64(a.Shots)
		upto := a.Totals[row*groups:][:groups]
		var draws []draw
		for ; s < min(end, (row+1)*uint64(a.Shots)); s++ {
			word := kernels.Philox([2]uint32{uint32(a.Seed), uint32(a.Seed >> 32)},
				[4]uint32{0, uint32(s - row*uint64(a.Shots)), a.First + uint32(row), 0})
			target, _ := bits.Mul64(uint64(word[1])<<32|uint64(word[0]), upto[groups-1])
			draws = append(draws, draw{target, int(s)})
		}
		slices.SortFunc(draws, func(x, y draw) int { return cmp.Compare(x.target, y.target) })
		at, sums := amplitudesOf(a.Amplitudes)[row<<a.Qubits:], a.Sums[row*groups<<a.Group:]
		// A run has index and the amplitudes behind it; before and below are the weights before them.
		var g, run, index, before, below uint64
		for _, d := range draws {
			was := run
			if upto[g] <= d.target {
				for upto[g] <= d.target {
					g++
				}
				run, before = g<<a.Group, upto[g-1]
			}
			for ; before+sums[run] <= d.target; run++ {
				before += sums[run]
			}
			if run != was || index == 0 {
				index, below = run*quantumset.RunSize, before
			}
			for w := at[index].weight(); below+w <= d.target; w = at[index].weight() {
				below += w
				index++
			}
			a.Samples[d.shot] = sampleOf(index, a.Places[:a.Qubits])
		}
	}
}

// sampleOf returns the bits of an index at their places.
func sampleOf(index uint64, places []uint32) (sample uint64) {
	for ; index != 0; index &= index - 1 {
		if place := places[bits.TrailingZeros64(index)]; place != quantumset.NoPlace {
			sample |= 1 << place
		}
	}
	return sample
}

// stateExpect is the twin of expect.cu.
func stateExpect(b *Block, a *quantumset.ExpectBound) {
	amplitudes := amplitudesOf(a.Amplitudes)
	top := uint64(0)
	if a.Flips != 0 {
		top = 1 << (bits.Len64(a.Flips) - 1)
	}
	sums := make([]uint64, a.Count)
	first, end := b.Part(a.Runs)
	for run := first; run < end; run++ {
		clear(sums)
		at := run * quantumset.RunSize
		for i := at; i < at+quantumset.RunSize; i++ {
			if i&top != 0 {
				continue
			}
			even, odd := product(amplitudes[i^a.Flips], amplitudes[i])
			for s := range sums {
				term := even
				if a.Strings[2*s+1]&quantumset.ExpectImaginary != 0 {
					term = odd
				}
				if bits.OnesCount64(i&a.Strings[2*s])%2 == 1 {
					term = -term
				}
				sums[s] += uint64(term)
			}
		}
		for s, sum := range sums {
			if a.Strings[2*s+1]&quantumset.ExpectNegative != 0 {
				sum = -sum
			}
			atomic.AddUint64(&a.Sums[(at>>a.Qubits)*uint64(a.Count)+uint64(s)], sum)
		}
	}
}

// product returns the real and the imaginary part of conj(b) a as integers of scale
// quantumset.WeightScale. The products of the parts are exact, and each sum is rounded once.
func product(b, a amplitude) (real, imaginary int64) {
	x, y, u, v := float64(a.re), float64(a.im), float64(b.re), float64(b.im)
	return int64((x*u + y*v) * quantumset.WeightScale), int64((y*u - x*v) * quantumset.WeightScale)
}
