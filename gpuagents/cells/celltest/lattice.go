package celltest

import (
	_ "embed" // the texts of the cells

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// The steps of the cells.
var (
	//go:embed gray_scott.cu
	GrayScottStep string
	//go:embed life3d.cu
	Life3DStep string
	//go:embed fire.cu
	FireStep string
	//go:embed diffusion.cu
	DiffusionStep string
	//go:embed mix.cu
	MixStep string
	//go:embed opinion.cu
	OpinionStep string
)

// GrayScott is two substances that react and spread.
func GrayScott() cells.Lattice {
	return cells.Lattice{
		State:  map[string]string{"used": "f32", "v": "f32"},
		Params: map[string]float64{"feed": 0.037, "kill": 0.06, "refill": 0.8, "spread": 0.4},
		Hear:   []lattice.Term{{Op: lattice.Mean, Var: "used"}, {Op: lattice.Mean, Var: "v"}},
		Step:   GrayScottStep, Vote: "v", Candidates: 2,
	}
}

// Life3D is Life of three dimensions, or the same rule in two.
func Life3D() cells.Lattice {
	return cells.Lattice{
		State: map[string]string{"alive": "u8"}, Hear: []lattice.Term{{Op: lattice.Count, Var: "alive"}},
		Step: Life3DStep, Vote: "alive", Candidates: 2,
	}
}

// Fire is a forest with three states.
func Fire() cells.Lattice {
	return cells.Lattice{
		State:  map[string]string{"state": "u8"},
		Params: map[string]float64{"growth": 0.25, "lightning": 0.0625},
		Hear:   []lattice.Term{{Op: lattice.Max, Var: "state"}}, Step: FireStep, Vote: "state", Candidates: 3,
	}
}

// Diffusion spreads grains that are never lost.
func Diffusion() cells.Lattice {
	return cells.Lattice{
		State: map[string]string{"grains": "u32", "share": "u32"},
		Hear:  []lattice.Term{{Op: lattice.Sum, Var: "share"}}, Step: DiffusionStep, Vote: "grains", Candidates: 5,
	}
}

// Mix has a variable of each type and all reductions.
func Mix() cells.Lattice {
	of := cells.Lattice{
		State:  map[string]string{"a": "u8", "b": "u32", "c": "u64", "d": "f32", "e": "bf16"},
		Params: map[string]float64{"rate": 0.3}, Step: MixStep, Vote: "a", Candidates: 16,
	}
	for _, op := range lattice.Ops {
		for _, v := range []string{"e", "d", "c", "b", "a"} { // steps see them in any order
			if op != lattice.Weighted && (op != lattice.Mean || v != "c") {
				of.Hear = append(of.Hear, lattice.Term{Op: op, Var: v})
			}
		}
	}
	return of
}

// Opinion spreads opinions over the links of a graph.
func Opinion() cells.Lattice {
	return cells.Lattice{
		State:  map[string]string{"opinion": "f32", "loud": "u8", "heard": "u32"},
		Params: map[string]float64{"trust": 0.25, "doubt": 0.05},
		Hear: []lattice.Term{
			{Op: lattice.Weighted, Var: "opinion"},
			{Op: lattice.Mean, Var: "opinion"},
			{Op: lattice.Sum, Var: "opinion"},
			{Op: lattice.Max, Var: "opinion"},
			{Op: lattice.Min, Var: "opinion"},
			{Op: lattice.Count, Var: "loud"},
			{Op: lattice.Sum, Var: "heard"},
		},
		Step: OpinionStep, Vote: "loud", Candidates: 2,
	}
}

// Grid is where agents are.
type Grid struct {
	Width, Height, Depth int
	Periodic, Faces      bool
}

// Len returns the number of agents.
func (g Grid) Len() int { return g.Width * g.Height * g.Depth }

// Place returns where an agent is.
func (g Grid) Place(id int) (x, y, z int) {
	return id % g.Width, id / g.Width % g.Height, id / g.Width / g.Height
}

// At returns the agent at a place, if there is one.
func (g Grid) At(x, y, z int) (id int, ok bool) {
	if g.Periodic {
		x, y, z = (x+g.Width)%g.Width, (y+g.Height)%g.Height, (z+g.Depth)%g.Depth
	}
	if x < 0 || x >= g.Width || y < 0 || y >= g.Height || z < 0 || z >= g.Depth {
		return 0, false
	}
	return (z*g.Height+y)*g.Width + x, true
}

// Around calls f for the neighbours of an agent, in the order of their places.
func (g Grid) Around(id int, f func(id int)) {
	x, y, z := g.Place(id)
	deep := 1
	if g.Depth == 1 {
		deep = 0
	}
	for dz := -deep; dz <= deep; dz++ {
		for dy := -1; dy <= 1; dy++ {
			for dx := -1; dx <= 1; dx++ {
				steps := dx*dx + dy*dy + dz*dz
				if steps == 0 || g.Faces && steps > 1 {
					continue
				}
				if at, ok := g.At(x+dx, y+dy, z+dz); ok {
					f(at)
				}
			}
		}
	}
}

// Neighbours returns their number.
func (g Grid) Neighbours(id int) (n int) {
	g.Around(id, func(int) { n++ })
	return n
}

// Sum returns the sum of a value over the neighbours of an agent, in the order of the frame: in
// each row, west and east, and then the agent between them; the rows of a plane; and the planes.
func (g Grid) Sum(id int, value func(id int) float32) float32 {
	x, y, z := g.Place(id)
	one := func(dx, dy, dz int) float32 {
		if at, ok := g.At(x+dx, y+dy, z+dz); ok {
			return value(at)
		}
		return 0
	}
	pair := func(dy, dz int) float32 { return one(-1, dy, dz) + one(1, dy, dz) }
	row := func(dy, dz int) float32 {
		if g.Faces {
			return one(0, dy, dz)
		}
		return pair(dy, dz) + one(0, dy, dz)
	}
	rows := func(dz int, middle float32) float32 { return row(-1, dz) + middle + row(1, dz) }
	switch {
	case g.Depth == 1:
		return rows(0, pair(0, 0))
	case g.Faces:
		return one(0, 0, -1) + rows(0, pair(0, 0)) + one(0, 0, 1)
	}
	return rows(-1, row(0, -1)) + rows(0, pair(0, 0)) + rows(1, row(0, 1))
}

// Mean is Sum over the number of neighbours.
func (g Grid) Mean(id int, value func(id int) float32) float32 {
	if n := g.Neighbours(id); n > 0 {
		return g.Sum(id, value) / float32(n)
	}
	return 0
}

// Count returns how many neighbours have a value that is not 0.
func (g Grid) Count(id int, value []byte) (n int) {
	g.Around(id, func(id int) {
		if value[id] != 0 {
			n++
		}
	})
	return n
}

// Number is number k of an agent in a tick, from 1 on, or of all ticks where that is 0.
func Number(seed uint64, k, id uint32, tick uint64) float32 {
	v := kernels.Philox([2]uint32{uint32(seed), uint32(seed >> 32)},
		[4]uint32{k / 4, id, uint32(tick), uint32(tick >> 32)})
	return float32(v[k%4]>>8) / (1 << 24)
}

// StepGrayScott is a tick of GrayScott.
func (g Grid) StepGrayScott(used, v []float32) (nextUsed, nextV []float32) {
	const feed, kill, refill, spread = float32(0.037), float32(0.06), float32(0.8), float32(0.4)
	nextUsed, nextV = make([]float32, len(used)), make([]float32, len(v))
	for id := range used {
		eaten := float32(float32((1-used[id])*v[id]) * v[id])
		byV := g.Mean(id, func(i int) float32 { return v[i] }) - v[id]
		byUsed := g.Mean(id, func(i int) float32 { return used[i] }) - used[id]
		nextV[id] = v[id] + float32(spread*byV) + eaten - float32((feed+kill)*v[id])
		nextUsed[id] = used[id] + float32(refill*byUsed) + eaten - float32(feed*used[id])
	}
	return nextUsed, nextV
}

// StepLife3D is a tick of Life3D.
func (g Grid) StepLife3D(alive []byte) []byte {
	next := make([]byte, len(alive))
	for id := range alive {
		if n := g.Count(id, alive); n == 5 || n == 4 && alive[id] == 1 {
			next[id] = 1
		}
	}
	return next
}

// StepFire is a tick of Fire, whose number counts from 0.
func (g Grid) StepFire(state []byte, seed, tick uint64) []byte {
	next := make([]byte, len(state))
	for id := range state {
		most := byte(0)
		g.Around(id, func(id int) { most = max(most, state[id]) })
		draw := Number(seed, 0, uint32(id), tick+1)
		switch {
		case state[id] == 0 && draw < 0.25:
			next[id] = 1
		case state[id] == 1 && (most == 2 || draw < 0.0625):
			next[id] = 2
		case state[id] == 1:
			next[id] = 1
		}
	}
	return next
}
