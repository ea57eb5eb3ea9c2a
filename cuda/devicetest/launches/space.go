package launches

import (
	"math"
	"math/rand/v2"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

// SpaceKernels returns the kernels that RandomSpace knows, in a fixed order.
func SpaceKernels() []string {
	return []string{
		spaceset.Place, spaceset.Load, spaceset.Count, spaceset.Sum, spaceset.Start, spaceset.Sort, spaceset.Boids,
		spaceset.Nearest8, spaceset.Nearest16, spaceset.Nearest32, spaceset.Circles, spaceset.Store, spaceset.Dots,
		spaceset.Flags, spaceset.Gather, spaceset.Colony, spaceset.Slots, spaceset.Born,
	}
}

// RandomSpace returns a random launch of a kernel of package spaceset over about n agents, at least
// one, in two or three dimensions. Steps are of boxes whose agents are everywhere, in few places,
// at walls, or at the same place. Pages are in frames in random order.
func RandomSpace(r *rand.Rand, kernel string, n int) *Arrays {
	a, agents := &Arrays{}, 1+n/16
	dims := 2 + r.IntN(2)
	bins := randomBins(r, dims)
	switch kernel {
	case spaceset.Place, spaceset.Load, spaceset.Store, spaceset.Dots, spaceset.Flags, spaceset.Gather, spaceset.Born:
		return a.boxPages(r, kernel, agents, dims)
	case spaceset.Count: // one agent in each bin, since numbers in a bin are in any order
		agents = min(agents, bins.all())
		positions := make([]uint32, 4*agents)
		for i, bin := range r.Perm(bins.all())[:agents] {
			bins.inside(r, bin, positions[4*i:])
		}
		return a.in(own(positions)).word(agents).three(bins).out(own(make([]uint32, bins.all()))).
			out(Poisoned(4 * agents))
	case spaceset.Slots:
		places := randomPlaces(r, agents)
		return a.word(agents).in(own(places)).out(Poisoned(4 * int(places[agents])))
	case spaceset.Sum, spaceset.Start:
		return a.counts(r, kernel, 1+n/4)
	case spaceset.Sort:
		all := randomBox(r, agents, dims, bins)
		moving := r.IntN(2)
		velocities := make([]uint32, 4*agents*moving)
		for i := range velocities {
			velocities[i] = r.Uint32()
		}
		positions, ranks := make([]uint32, 4*agents), make([]uint32, agents)
		next := make([]uint32, bins.all())
		for i, from := range r.Perm(agents) {
			copy(positions[4*i:], all.positions[4*from:4*from+4])
			bin := bins.of(positions[4*i:])
			ranks[i] = next[bin]
			next[bin]++
		}
		return a.in(own(positions)).in(own(velocities)).word(agents).word(moving).three(bins).in(own(all.starts)).
			in(own(ranks)).out(Poisoned(16 * agents)).out(Poisoned(len(velocities) * 4))
	}
	return a.step(r, kernel, agents, dims, bins)
}

// boxBins are bins on each axis.
type boxBins [3]int

// randomBins returns some: 4 or more on an axis, and 1 on the third of two dimensions.
func randomBins(r *rand.Rand, dims int) (n boxBins) {
	for k := range n {
		if n[k] = spaceset.Least + r.IntN(5); k >= dims {
			n[k] = 1
		}
	}
	return n
}

func (n boxBins) all() int { return n[0] * n[1] * n[2] }

func (n boxBins) of(position []uint32) (bin int) {
	for k := 2; k >= 0; k-- {
		bin = bin*n[k] + int(uint64(position[k])*uint64(n[k])>>32)
	}
	return bin
}

func (n boxBins) inside(r *rand.Rand, bin int, to []uint32) {
	for k, all := range n {
		at := uint64(bin % all)
		bin /= all
		first, end := (at<<32+uint64(all)-1)/uint64(all), ((at+1)<<32-1)/uint64(all)
		if to[k] = uint32(first + r.Uint64N(end-first+1)); all == 1 {
			to[k] = 0
		}
	}
}

func (a *Arrays) three(n boxBins) *Arrays { return a.word(n[0]).word(n[1]).word(n[2]) }

// randomPlaces returns the places of some agents in a list, and behind them their number.
func randomPlaces(r *rand.Rand, agents int) []uint32 {
	places, in := []uint32{0}, 1+r.IntN(4)
	for i := range agents {
		next := places[i]
		if r.IntN(in) == 0 {
			next++
		}
		places = append(places, next)
	}
	return places
}

func (a *Arrays) counts(r *rand.Rand, kernel string, bins int) *Arrays {
	part := 32 * (1 + r.IntN(20))
	counts := make([]uint32, bins)
	sums := make([]uint32, (bins+part-1)/part)
	for i := range counts {
		counts[i] = r.Uint32N(9)
		sums[i/part] += counts[i]
	}
	a.memory(own(counts), kernel == spaceset.Start).word(bins).word(part)
	if kernel == spaceset.Sum {
		return a.out(Poisoned(4 * len(sums)))
	}
	return a.in(own(sums)).out(Poisoned(4 * (bins + 1)))
}

// boxPages makes a launch of a kernel of pages, but for Colony.
func (a *Arrays) boxPages(r *rand.Rand, kernel string, agents, dims int) *Arrays {
	per, moving := 1+r.IntN(300), r.IntN(2)
	bytes := func(n int) int { return (n + 255) / 256 * 256 }
	at, stride := bytes(per), bytes(4*per)
	pageBytes := at + (1+moving)*dims*stride + 256
	count := (agents + per - 1) / per
	frames, content := make([]uint32, count), make([]byte, count*pageBytes)
	for i, frame := range r.Perm(count) {
		frames[i] = uint32(frame)
	}
	speed := func() int32 { return r.Int32N(2*spaceset.Units+1) - spaceset.Units }
	for id := range agents {
		page := content[int(frames[id/per])*pageBytes:]
		for k := range dims {
			copy(page[at+k*stride+4*(id%per):], own([]uint32{r.Uint32()}))
			if moving > 0 {
				copy(page[at+(dims+k)*stride+4*(id%per):], own([]float32{float32(speed()) / spaceset.Units}))
			}
		}
	}
	writes := kernel == spaceset.Place || kernel == spaceset.Store || kernel == spaceset.Born
	a.memory(content, writes).in(own(frames)).scalar(device.Uint64(uint64(pageBytes))).word(per).
		word(at).word(stride).word(dims)
	for id := range agents {
		content[int(frames[id/per])*pageBytes+id%per] = byte(r.IntN(2))
	}
	switch kernel {
	case spaceset.Flags:
		return a.word(agents).word(r.IntN(2)).out(Poisoned(4 * agents))
	case spaceset.Gather:
		places := randomPlaces(r, agents)
		return a.word(agents).in(own(places)).out(Poisoned(16 * int(places[agents])))
	case spaceset.Born:
		births, empty := randomPlaces(r, agents), randomPlaces(r, agents)
		slots, children := make([]uint32, empty[agents]), make([]uint32, 4*agents)
		for i, id := range r.Perm(agents)[:len(slots)] {
			slots[i] = uint32(id)
		}
		for i := range children {
			children[i] = r.Uint32()
		}
		// A group has all agents of a page, and its word is behind the others.
		return a.word(agents).in(own(births)).in(own(empty)).in(own(slots)).in(own(children)).
			word(pageBytes - 4).word(per)
	}
	if kernel == spaceset.Place {
		first := r.IntN(agents)
		a.word(first).word(first + r.IntN(agents-first) + 1).word(moving * (1 + r.IntN(spaceset.Units)))
		return a.scalar(device.Uint32(r.Uint32())).scalar(device.Uint32(r.Uint32()))
	}
	if kernel == spaceset.Dots {
		columns, rows := 1+r.IntN(40), 1+r.IntN(40)
		counts := make([]uint32, columns*rows)
		for i := range counts {
			counts[i] = r.Uint32N(3)
		}
		return a.word(agents).word(r.IntN(2)).word(columns).word(rows).out(own(counts))
	}
	a.word(agents).word(moving)
	if kernel == spaceset.Load {
		return a.out(Poisoned(16 * agents)).out(Poisoned(16 * agents * moving))
	}
	positions, velocities, states := make([]uint32, 4*agents), make([]uint32, 4*agents*moving), make([]byte, agents)
	for i, id := range r.Perm(agents) {
		positions[4*i], positions[4*i+1], positions[4*i+2] = r.Uint32(), r.Uint32(), r.Uint32()
		if positions[4*i+3], states[i] = uint32(id), byte(r.IntN(2)); moving > 0 {
			for k := range 3 {
				velocities[4*i+k] = uint32(speed())
			}
		}
	}
	return a.in(own(positions)).in(own(velocities)).in(states)
}

type box struct {
	positions, starts []uint32
}

func randomBox(r *rand.Rand, agents, dims int, bins boxBins) (b box) {
	var places [][4]uint32
	few := r.IntN(2) == 0     // some are close to each other, or at the same place
	lattice := r.IntN(3) == 0 // many are at the same distance
	for id := range agents {
		p := [4]uint32{r.Uint32(), r.Uint32(), r.Uint32(), uint32(id)}
		if few && id > 0 && r.IntN(4) > 0 {
			near := places[r.IntN(id)]
			for k := range 3 {
				p[k] = near[k] + r.Uint32N(1<<28)*uint32(r.IntN(3)) - 1<<27
			}
			if r.IntN(9) == 0 {
				p = [4]uint32{near[0], near[1], near[2], uint32(id)}
			}
		}
		if r.IntN(20) == 0 { // at a wall
			p[r.IntN(dims)] = []uint32{0, math.MaxUint32}[r.IntN(2)]
		}
		if dims == 2 {
			p[2] = 0
		}
		for k := range 3 {
			if lattice {
				p[k] &^= 1<<28 - 1
			}
		}
		places = append(places, p)
	}
	r.Shuffle(agents, func(i, j int) { places[i], places[j] = places[j], places[i] }) // any order in a bin
	of := make([][]uint32, bins.all())
	for _, p := range places {
		bin := bins.of(p[:])
		of[bin] = append(of[bin], p[:]...)
	}
	b.starts = []uint32{0}
	for _, list := range of {
		b.positions = append(b.positions, list...)
		b.starts = append(b.starts, uint32(len(b.positions)/4))
	}
	return b
}

// step makes a launch of Boids or one of Nearest, of Circles or of Colony. reach bins on the first
// axis are as wide as a radius, or wider, and so is a bin on the others.
func (a *Arrays) step(r *rand.Rand, kernel string, agents, dims int, bins boxBins) *Arrays {
	reach := 1 + r.IntN(4)
	bins[0] *= reach
	all, wide := randomBox(r, agents, dims, bins), 1+r.Float64()
	boids := kernel != spaceset.Circles && kernel != spaceset.Colony
	float := func(v float64) { a.scalar(device.Float32(float32(v))) }
	each := func(f func(k int) float64) {
		for k := range 3 {
			if k >= dims {
				float(0)
				continue
			}
			float(f(k))
		}
	}
	side := bins
	side[0] /= reach
	radii := func(k int) float64 { return float64(side[k]) * wide } // of the side
	if kernel == spaceset.Colony {
		per := 1 + r.IntN(300)
		frames, page := r.Perm((agents+per-1)/per), (per+255)/256*256
		states, own32 := make([]byte, len(frames)*page), make([]uint32, len(frames))
		for i := range states {
			states[i] = byte(r.IntN(2))
		}
		for i, frame := range frames {
			own32[i] = uint32(frame)
		}
		a.out(states).in(own(own32)).scalar(device.Uint64(uint64(page))).word(per).word(0).word(0).word(dims)
	}
	a.in(append(own(all.positions), Poisoned(3*16)...)) // it reads behind the last
	speeds := make([]uint32, 4*agents)
	for i := range agents {
		for k := range dims {
			speeds[4*i+k] = uint32(r.Int32N(spaceset.Units) - spaceset.Units/2)
		}
	}
	if boids {
		a.in(own(speeds))
	}
	a.word(agents).three(bins).word(reach).word(r.IntN(2)).in(own(all.starts))
	each(func(k int) float64 { return radii(k) / (1 << 32) * (1 + 1.0/(1<<20)) })
	if kernel == spaceset.Colony {
		a.scalar(device.Uint32(chanceOf(r))).scalar(device.Uint32(chanceOf(r))).scalar(device.Uint32(r.Uint32() >> 4)).
			word(r.IntN(9))
		for k := range 3 {
			a.word(min(1, max(0, dims-k)) * r.IntN(1<<30))
		}
		a.word(r.IntN(1000)).scalar(device.Uint32(r.Uint32())).scalar(device.Uint32(r.Uint32()))
		return a.out(own(make([]uint32, agents))).out(make([]byte, 16*agents))
	}
	if !boids {
		push := r.Float64()
		each(func(k int) float64 { return -push / spaceset.One * (1 << 32) / radii(k) })
		return a.out(Poisoned(16 * agents)).out(Poisoned(agents)).word(r.IntN(2)).out(words(2, 5))
	}
	within := r.Float64() * float64(r.IntN(3))
	float(within)
	float(1 / max(within, 1e-9))
	cohesion := r.Float64() * 0.1
	each(func(k int) float64 { return cohesion * radii(k) / (1 << 32) * spaceset.Units })
	float(r.Float64())
	float(r.Float64() * spaceset.Units / spaceset.One)
	slowest := r.Float64() * float64(r.IntN(2))
	float(slowest * spaceset.Units)
	float((slowest + (1-slowest)*r.Float64()) * spaceset.Units)
	each(func(k int) float64 { return (1 << 32) / radii(k) / spaceset.Units })
	a.out(Poisoned(16 * agents)).out(Poisoned(16 * agents)).out(Poisoned(agents)).
		word(r.IntN(2)).out(words(2, 5))
	switch kernel {
	case spaceset.Nearest8:
		a.word(1 + r.IntN(8))
	case spaceset.Nearest16:
		a.word(1 + r.IntN(16))
	case spaceset.Nearest32:
		a.word(1 + r.IntN(spaceset.MostNearest))
	}
	return a
}
