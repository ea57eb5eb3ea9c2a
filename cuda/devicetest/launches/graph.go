package launches

import (
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// GraphKernels returns the kernels that RandomGraph knows, in a fixed order.
func GraphKernels() []string {
	return []string{
		graphset.Links, graphset.Mark, graphset.SIR, graphset.Rounds, graphset.List, graphset.Push, graphset.LIF,
		graphset.Izhikevich, graphset.Put, graphset.Take, graphset.Trace, graphset.Send, graphset.Recall,
		graphset.Remember, graphset.Pick, graphset.Count, graphset.Split,
	}
}

// RandomGraph returns a random launch of a kernel of package graphset over about n agents, at least
// one, whose pages are in frames in random order. Some graphs have rows of one length, and others
// rows of all lengths, some in several parts. Chances are 0 and 1 too.
func RandomGraph(r *rand.Rand, kernel string, n int) *Arrays {
	a, agents := &Arrays{}, 1+n/4
	key := func() *Arrays { return a.scalar(device.Uint32(r.Uint32())).scalar(device.Uint32(r.Uint32())) }
	per := 1 + r.IntN(300)
	if r.IntN(2) == 0 {
		per *= 4
	}
	pageBytes := (per+255)/256*256 + 256
	count := (agents + per - 1) / per
	frames := make([]uint32, count)
	for i, frame := range r.Perm(count) {
		frames[i] = uint32(frame)
	}
	switch kernel {
	case graphset.List: // one agent, since a list is in any order
		id, states := r.IntN(agents), make([]byte, count*pageBytes)
		states[int(frames[id/per])*pageBytes+id%per] = 1
		return a.in(states).in(own(frames)).scalar(device.Uint64(uint64(pageBytes))).word(per).word(agents).
			out(Poisoned(4 * agents)).out(own([]uint32{0, 0})).word(r.IntN(2))
	case graphset.Pick: // one agent, for the same reason
		id, bits := r.IntN(agents), make([]uint32, (agents+31)/32)
		bits[id/32] = 1 << (id % 32)
		return a.in(own(bits)).word(agents).out(Poisoned(4 * agents)).out(own([]uint32{0, 0})).word(r.IntN(2))
	case graphset.Count, graphset.Split:
		return a.split(r, kernel, agents)
	case graphset.Send:
		return a.send(r, agents)
	case graphset.Recall, graphset.Remember:
		return a.history(r, kernel, agents, per, frames)
	case graphset.Izhikevich:
		return a.izhikevich(r, agents, per, frames)
	case graphset.Push, graphset.LIF, graphset.Put, graphset.Take:
		return a.spiking(r, kernel, agents, per, frames)
	case graphset.Links:
		degree := 1 + r.IntN(9)
		a.out(Poisoned(4 * agents * degree)).word(agents).word(degree).scalar(device.Uint64(rewire(r, agents)))
		return key()
	case graphset.Rounds:
		slots := 1 + r.IntN(60)
		groups := 1 + r.IntN(count*slots)
		return a.out(Poisoned(count * 512)).in(own(frames)).scalar(device.Uint64(512)).word(slots).word(groups).
			word(256).word(r.IntN(1000))
	}
	states := make([]byte, count*pageBytes)
	for i, in := 0, 1+r.IntN(5); i < len(states); i++ {
		if r.IntN(in) == 0 {
			states[i] = byte(r.IntN(graphset.States))
		}
	}
	if r.IntN(3) == 0 { // few are infected, so that long rows are read to their ends
		clear(states)
		for range 1 + r.IntN(3) {
			states[r.IntN(len(states))] = graphset.Infected
		}
	}
	if kernel == graphset.Trace {
		return a.in(states).in(own(frames)).scalar(device.Uint64(uint64(pageBytes))).word(per).word(agents).
			word(r.IntN(graphset.States)).trace(r, agents)
	}
	a.memory(states, kernel == graphset.SIR).in(own(frames)).scalar(device.Uint64(uint64(pageBytes))).word(per).
		word(agents)
	bits := func() int { return (agents + 31) / 32 * 4 }
	if kernel == graphset.Mark {
		return a.word(r.IntN(graphset.States)).out(Poisoned(bits()))
	}
	first, all := 0, agents // of several devices, each has a part of all agents
	if r.IntN(2) == 0 {
		first = 128 * r.IntN(20)
		all += first + r.IntN(1000)
	}
	infected := make([]uint32, (all+31)/32)
	for i := range infected {
		infected[i] = r.Uint32()
	}
	for id := range agents {
		at := first + id
		infected[at/32] &^= 1 << (at % 32)
		if states[int(frames[id/per])*pageBytes+id%per] == graphset.Infected {
			infected[at/32] |= 1 << (at % 32)
		}
	}
	degree, offsets := 0, []uint64{0}
	if r.IntN(2) == 0 {
		degree = 1 + r.IntN(60)
	}
	for range agents {
		links := degree
		if degree == 0 {
			if links = r.IntN(12); r.IntN(40) == 0 {
				links = r.IntN(3 * graphset.Part)
			}
			if r.IntN(300) == 0 {
				links = 33*graphset.Part + r.IntN(99)
			}
		}
		offsets = append(offsets, offsets[len(offsets)-1]+uint64(links))
	}
	columns := make([]uint32, offsets[agents])
	weights := make([]uint32, len(columns))
	for i := range columns {
		columns[i], weights[i] = r.Uint32N(uint32(all)), r.Uint32N(1<<16+1)
	}
	a.in(own(infected)).out(Poisoned(bits())).in(own(offsets)).in(own(columns)).in(own(weights)).word(degree).
		word(r.IntN(2)).in(own(missed(r))).scalar(device.Uint32(chanceOf(r))).word(r.IntN(1000))
	return key().word(r.IntN(2)).out(words(1, 2, r.Uint64N(1<<40))).word(first)
}

// rowsOf returns the offsets of rows of fewer than most links for each of some agents. All rows
// have degree links unless that is 0.
func rowsOf(r *rand.Rand, agents, most int) (degree int, offsets []uint64) {
	if r.IntN(2) == 0 {
		degree = 1 + r.IntN(most-1)
	}
	offsets = []uint64{0}
	for range agents {
		links := degree
		if degree == 0 {
			links = r.IntN(most)
		}
		offsets = append(offsets, offsets[len(offsets)-1]+uint64(links))
	}
	return degree, offsets
}

// spiking makes a launch of a kernel of neurons. The lists that a kernel appends to are in any
// order, so that a launch has none: LIF has neurons that do not spike, or one.
func (a *Arrays) spiking(r *rand.Rand, kernel string, agents, per int, frames []uint32) *Arrays {
	if kernel == graphset.Push {
		count := r.IntN(min(agents, 300) + 1)
		degree, offsets := rowsOf(r, agents, 120)
		columns, sums := make([]uint32, offsets[agents]), make([]uint32, agents)
		weights := make([]uint32, len(columns))
		for i := range columns {
			columns[i], weights[i] = r.Uint32N(uint32(agents)), r.Uint32()
		}
		for i := range sums {
			sums[i] = r.Uint32()
		}
		active := make([]uint32, agents)
		for i, id := range r.Perm(agents) {
			active[i] = uint32(id)
		}
		which, counts := r.IntN(2), []uint32{7, 7}
		counts[which] = uint32(count)
		a.in(own(active)).out(own(counts)).word(which).out(own(sums)).in(own(offsets)).in(own(columns)).
			in(own(weights)).word(degree).word(r.IntN(2)).word(r.IntN(agents + 1)).word(int(r.Int32())).
			word(int(r.Uint32()))
		return a.partial(r, offsets)
	}
	bytes := func(n int) int { return (n + 255) / 256 * 256 }
	resting, potentials := bytes(per), 2*bytes(per)
	currents := potentials + bytes(4*per)
	pageBytes := currents + bytes(4*per)
	content := make([]byte, len(frames)*pageBytes)
	a.memory(content, kernel != graphset.Take).in(own(frames)).scalar(device.Uint64(uint64(pageBytes))).word(per)
	if kernel != graphset.LIF {
		for i := range content {
			content[i] = byte(r.Uint32())
		}
		ids, values := make([]uint32, min(agents, 1+r.IntN(300))), make([]uint32, 0)
		for i, id := range r.Perm(agents)[:len(ids)] {
			ids[i], values = uint32(id), append(values, r.Uint32())
		}
		a.word([]int{potentials, currents}[r.IntN(2)]).in(own(ids)).word(len(ids))
		return a.memory(own(values), kernel == graphset.Take)
	}
	marked, first := ofDevice(r, agents)
	threshold := float32(2.5) // at most one of these neurons spikes
	if r.IntN(2) == 0 {
		threshold = 100
	}
	sums, spikes := make([]uint32, agents), 0
	for id := range agents {
		page := content[int(frames[id/per])*pageBytes:]
		at := id % per
		page[at], page[resting+at] = byte(r.IntN(2)), byte(max(0, r.IntN(5)-2))
		low := threshold == 100 || spikes > 0 && !marked // it does not spike
		put := func(offset int, v float32) { copy(page[offset+4*at:], own([]float32{v})) }
		put(potentials, float32(r.NormFloat64())*0.1)
		put(currents, float32(r.NormFloat64())*0.05)
		if id >= first {
			sums[id-first] = uint32(int32(r.NormFloat64() * 6000))
		}
		if !low && r.IntN(20) == 0 {
			put(currents, 3)
			spikes++
		}
	}
	noise := float32(0)
	if r.IntN(2) == 0 {
		noise = 0.01
	}
	a.word(agents - first).word(resting).word(potentials).word(currents).out(own(sums)).
		out(Poisoned(4 * agents)).out(own([]uint32{0, 0})).word(r.IntN(2)).scalar(device.Float32(r.Float32())).
		scalar(device.Float32(threshold)).word(r.IntN(4)).scalar(device.Float32(noise)).word(r.IntN(100))
	a.scalar(device.Uint32(r.Uint32())).scalar(device.Uint32(r.Uint32())).word(r.IntN(2)).out(words(3, 4))
	return a.marks(marked, agents-first, first)
}

// izhikevich makes a launch of Izhikevich whose neurons do not spike, but for one at most.
// Potentials are at random between the bounds, and at them.
func (a *Arrays) izhikevich(r *rand.Rand, agents, per int, frames []uint32) *Arrays {
	bytes := func(n int) int { return (n + 255) / 256 * 256 }
	potentials := bytes(per)
	recoveries := potentials + bytes(4*per)
	currents := recoveries + bytes(4*per)
	pageBytes := currents + bytes(4*per)
	content := make([]byte, len(frames)*pageBytes)
	sums, spiking, tick := make([]uint32, agents), r.IntN(4*agents), r.IntN(3)
	marked, first := ofDevice(r, agents)
	for id := range agents {
		page := content[int(frames[id/per])*pageBytes:]
		at := id % per
		put := func(offset int, v float64) { copy(page[offset+4*at:], own([]float32{float32(v)})) }
		page[at] = byte(r.IntN(2))
		put(potentials, -60-60*r.Float64())
		put(recoveries, 20+20*r.NormFloat64())
		put(currents, -50*r.Float64())
		if id >= first {
			sums[id-first] = uint32(-r.Int32N(1 << 22))
		}
		if id == spiking || marked && r.IntN(9) == 0 {
			put(currents, 1e6*r.Float64()+1e4)
		}
	}
	types := []float32{}
	for range 2 {
		types = append(types, r.Float32(), r.Float32()-0.5, -50-50*r.Float32(), 20*r.Float32()-10, 2*r.Float32())
	}
	a.out(content).in(own(frames)).scalar(device.Uint64(uint64(pageBytes))).word(per).word(agents - first).
		word(potentials).word(recoveries).word(currents).out(own(sums)).out(Poisoned(4 * agents)).
		out(own([]uint32{0, 0})).
		word(r.IntN(2)).in(own(types)).word(r.IntN(agents + 1)).word(r.IntN(2)).word(tick)
	a.scalar(device.Uint32(r.Uint32())).scalar(device.Uint32(r.Uint32())).word(r.IntN(2)).out(words(3, 4))
	return a.marks(marked, agents-first, first)
}

func (a *Arrays) trace(r *rand.Rand, agents int) *Arrays {
	perRow := 1 + r.IntN(agents)
	if r.IntN(2) == 0 {
		perRow = 128 * (1 + r.IntN(9))
	}
	rows, columns := (agents+perRow-1)/perRow, 2+r.IntN(3)
	column, counts := r.IntN(columns), make([]uint32, rows*columns)
	for i := range counts {
		if i/rows != column {
			counts[i] = r.Uint32()
		}
	}
	return a.word(perRow).word(rows).word(column).word(columns).out(own(counts))
}

// rewire returns a chance in 2^-32, up to 1.
func rewire(r *rand.Rand, agents int) uint64 {
	switch {
	case agents == 1 || r.IntN(3) == 0:
		return 0
	case r.IntN(2) == 0:
		return 1 << 32
	}
	return r.Uint64N(1 << 32)
}

// chanceOf returns a chance as a word. The largest word is the chance 1.
func chanceOf(r *rand.Rand) uint32 {
	return []uint32{0, math.MaxUint32, r.Uint32(), r.Uint32()}[r.IntN(4)]
}

func missed(r *rand.Rand) []uint32 {
	all, left := make([]uint32, graphset.Gaps), 1.0
	fails := []float64{0, 1, 1 - 0.1*r.Float64(), r.Float64()}[r.IntN(4)]
	for i := range all {
		left *= fails
		all[i] = uint32(min(math.Round(left*(1<<32)), math.MaxUint32))
	}
	return all
}
