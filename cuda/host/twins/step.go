package twins

import (
	"math"
	"slices"
	"sync/atomic"

	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

func init() {
	Register(spaceset.Boids, func(b *Block, a *spaceset.BoidsBound) {
		boids(b, &a.SteeredBound, (*near).each)
	})
	for _, kernel := range []string{spaceset.Nearest8, spaceset.Nearest16, spaceset.Nearest32} {
		Register(kernel, func(b *Block, a *spaceset.NearestBound) {
			nearest := &nearest{most: int(a.Most)}
			boids(b, &a.SteeredBound, nearest.each)
		})
	}
	Register(spaceset.Circles, circles)
}

// near is the twin of near.cuh: a sorted list of agents, and the index of each bin in it.
type near struct {
	positions, starts []uint32
	bins              bins
	reach             int
	periodic          bool
	scale             [3]float32 // steps of a position in radii
}

func nearOf(sorted []uint32, a *spaceset.NearBound) *near {
	return &near{
		positions: sorted, starts: a.Starts, bins: bins{a.Nx, a.Ny, a.Nz}, reach: int(a.Reach),
		periodic: a.Periodic != 0, scale: [3]float32{a.Sx, a.Sy, a.Sz},
	}
}

// offset returns the distance of agent j from a position on each axis, in steps and in radii, and
// the square of the distance.
func (n *near) offset(p *[3]uint32, j uint32) (steps [3]int32, radii [3]float32, square float32) {
	o := n.positions[4*uint64(j):][:3]
	for k := range 3 {
		steps[k] = int32(o[k] - p[k])
		radii[k] = float32(steps[k]) * n.scale[k]
	}
	return steps, radii, squared(radii[0], radii[1], radii[2])
}

func squared(x, y, z float32) float32 {
	xy := float32(x*x) + float32(y*y)
	return xy + float32(z*z)
}

// beside returns the bin at a distance of d from bin b on an axis, and whether there is one.
func (n *near) beside(b uint32, d, axis int) (other uint32, ok bool) {
	all := int64(n.bins[axis])
	if d != 0 && all == 1 {
		return 0, false
	}
	at := int64(b) + int64(d)
	return uint32((at + all) % all), n.periodic || at >= 0 && at < all
}

// each calls f for the agents of the bins around a position that are nearer than a radius. The
// agent that is there is one of them.
func (n *near) each(p *[3]uint32, _ uint32, f func(j uint32)) {
	at := n.bins.of(p[:])
	for dz := -1; dz <= 1; dz++ {
		z, ok := n.beside(at[2], dz, 2)
		if !ok {
			continue
		}
		for dy := -1; dy <= 1; dy++ {
			y, ok := n.beside(at[1], dy, 1)
			if !ok {
				continue
			}
			row := n.starts[n.bins.number(bins{0, y, z}):][:n.bins[0]+1]
			for dx := -n.reach; dx <= n.reach; dx++ {
				if x, ok := n.beside(at[0], dx, 0); ok {
					n.in(p, row[x], row[x+1], f)
				}
			}
		}
	}
}

// in is each for the agents of a bin, from first on up to end.
func (n *near) in(p *[3]uint32, first, end uint32, f func(j uint32)) {
	x, y, z, sx, sy, sz := p[0], p[1], p[2], n.scale[0], n.scale[1], n.scale[2]
	all := n.positions[4*uint64(first) : 4*uint64(end)]
	for j := first; len(all) >= 4; j, all = j+1, all[4:] {
		dx, dy, dz := float32(int32(all[0]-x))*sx, float32(int32(all[1]-y))*sy, float32(int32(all[2]-z))*sz
		if squared(dx, dy, dz) < 1 {
			f(j)
		}
	}
}

// nearest is the twin of struct Nearest in nearest.cu: it finds the nearest of the near agents.
type nearest struct {
	most  int
	found []neighbour // in their order
}

// neighbour is an agent of the sorted list that is near.
type neighbour struct {
	square float32 // of its distance
	id, at uint32  // its number, and its place in the list
}

// before reports whether an agent is nearer than another one. Of two at the same distance it is the
// one with the smaller number.
func (n neighbour) before(o neighbour) bool {
	return n.square < o.square || n.square == o.square && n.id < o.id
}

func (l *nearest) each(n *near, p *[3]uint32, own uint32, f func(j uint32)) {
	l.found = l.found[:0]
	n.each(p, own, func(j uint32) {
		_, _, square := n.offset(p, j)
		of := neighbour{square, n.positions[4*uint64(j)+3], j}
		if j == own || len(l.found) == l.most && !of.before(l.found[l.most-1]) {
			return
		}
		at, _ := slices.BinarySearchFunc(l.found, of, func(a, b neighbour) int {
			if a.before(b) {
				return -1
			}
			return 1
		})
		l.found = slices.Insert(l.found[:min(len(l.found), l.most-1)], at, of)
	})
	for _, of := range l.found {
		f(of.at)
	}
}

// moved returns a position after a number of steps. In a box that is not periodic it bounces off
// the walls, which turned reports, or stops there.
func (n *near) moved(position uint32, by int32, bounce bool) (to uint32, turned bool) {
	at := int64(position) + int64(by)
	switch {
	case n.periodic || at >= 0 && at < 1<<32:
		return uint32(at), false
	case !bounce:
		return uint32(min(max(at, 0), 1<<32-1)), false
	case at < 0:
		return uint32(-1 - at), true
	}
	return uint32(1<<33 - 1 - at), true
}

// talliedAgents adds the agents in each state to the tally, if count is not 0.
func talliedAgents(count uint32, tally []uint64, states [spaceset.States]uint64) {
	if count == 0 {
		return
	}
	for s, n := range states {
		atomic.AddUint64(&tally[s], n)
	}
}

// seen is what a boid adds up over the agents that are near.
type seen struct {
	count                      uint32
	offsets, speeds, separates [3]int64
}

// boids is the twin of boids.cu and nearest.cu. each calls f for the agents that agent own of the
// list hears, and perhaps for itself.
func boids(b *Block, a *spaceset.SteeredBound,
	each func(n *near, p *[3]uint32, own uint32, f func(j uint32)),
) {
	all, speeds, velocities := nearOf(a.Sorted, &a.NearBound), signed(a.SortedVelocities), signed(a.Velocities)
	cohesion, move := [3]float32{a.Cx, a.Cy, a.Cz}, [3]float32{a.Mx, a.My, a.Mz}
	var tally [spaceset.States]uint64
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		p, v := [3]uint32(all.positions[4*i:]), [3]int32(speeds[4*i:])
		var s seen
		each(all, &p, uint32(i), func(j uint32) {
			steps, radii, square := all.offset(&p, j)
			if uint64(j) == i {
				return
			}
			s.count++
			w := float32(1-float32(square*a.Inverse)) * spaceset.One
			for k := range 3 {
				s.offsets[k] += int64(steps[k])
				s.speeds[k] += int64(speeds[4*uint64(j)+uint64(k)])
				if square < a.Within {
					s.separates[k] += int64(rounded(w * radii[k]))
				}
			}
		})
		var to [3]float32
		for k := range 3 {
			if to[k] = float32(v[k]); s.count > 0 {
				of := 1 / float32(s.count)
				to[k] += float32(float32(float32(s.offsets[k])*of) * cohesion[k])
				to[k] += float32((float32(float32(s.speeds[k])*of) - float32(v[k])) * a.Alignment)
				to[k] -= float32(float32(s.separates[k]) * a.Separation)
				to[k] = max(min(to[k], 1e15), -1e15)
			}
		}
		square := squared(to[0], to[1], to[2])
		scale := float32(1)
		switch {
		case square > a.Fastest*a.Fastest:
			scale = a.Fastest / float32(math.Sqrt(float64(square)))
		case square < a.Slowest*a.Slowest && square > 0:
			scale = a.Slowest / float32(math.Sqrt(float64(square)))
		}
		for k := range 3 {
			u := rounded(to[k] * scale)
			at, turned := all.moved(p[k], rounded(float32(u)*move[k]), true)
			if turned {
				u = -u
			}
			a.Positions[4*i+uint64(k)], velocities[4*i+uint64(k)] = at, u
		}
		a.Positions[4*i+3], velocities[4*i+3] = all.positions[4*i+3], 0
		a.States[i] = byte(min(s.count, 1))
		tally[a.States[i]]++
	}
	talliedAgents(a.Count, a.Tally, tally)
}

// sine returns sin(2 pi d)/d, where q is the square of d.
func sine(q float32) float32 {
	t, g := q+q-1, float32(0)
	for i, c := range spaceset.Sine {
		if g = float32(g*t) + c; i == 0 {
			g = c
		}
	}
	return g
}

func circles(b *Block, a *spaceset.CirclesBound) {
	all, move := nearOf(a.Sorted, &a.NearBound), [3]float32{a.Mx, a.My, a.Mz}
	var tally [spaceset.States]uint64
	first, end := b.Part(uint64(a.Agents))
	for i := first; i < end; i++ {
		p, near, forces := [3]uint32(all.positions[4*i:]), uint32(0), [3]int64{}
		all.each(&p, uint32(i), func(j uint32) {
			_, radii, square := all.offset(&p, j)
			if square == 0 { // the agent itself, or one at the same place
				return
			}
			near++
			g := sine(square) * spaceset.One
			for k := range 3 {
				forces[k] += int64(rounded(g * radii[k]))
			}
		})
		for k := range 3 {
			if near > 0 {
				of := 1 / float32(near)
				p[k], _ = all.moved(p[k], rounded(float32(float32(forces[k])*of)*move[k]), false)
			}
			a.Positions[4*i+uint64(k)] = p[k]
		}
		a.Positions[4*i+3] = all.positions[4*i+3]
		a.States[i] = byte(min(near, 1))
		tally[a.States[i]]++
	}
	talliedAgents(a.Count, a.Tally, tally)
}
