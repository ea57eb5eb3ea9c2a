package cells

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/spaceset"
)

// The cells whose agents are in a box; see BoxCandidates.
const (
	BoidsName   = "boids"
	CirclesName = "circles"
	ColonyName  = "colony"
)

// BoxCandidates are the states of an agent in a box, in their order: whether another agent was
// within the radius before the last tick.
var BoxCandidates = []string{"alone", "near"}

// ColonyCandidates are the states of an agent of colony, in their order. One that is empty is room
// for a birth.
var ColonyCandidates = []string{"empty", "alive"}

// boidsAddressed, circlesAddressed and colonyAddressed have no weights: an observation is the place
// of an agent, and of a boid its velocity too. Package gpuagents/space steps them.
var (
	boidsAddressed = &Cell{
		Name: BoidsName, Candidates: BoxCandidates,
		Doc: "boids in the box of `neighbours`, in two or three dimensions: in a tick an agent steers by all others " +
			"within the radius, and moves. Lengths are in radii, and speeds in radii for a tick. The features of an " +
			"agent are its position and its velocity, in the unit of the box",
		Params: []Param{
			{Name: "separation", Default: 0.1, Min: 0, Max: 100, Doc: "steering away from agents within `distance`: " +
				"the sum of the ways from them, each times 1 - (its length / `distance`)^2"},
			{Name: "distance", Default: 0.5, Min: 0, Max: 1, Doc: "distance below which agents separate"},
			{Name: "alignment", Default: 0.1, Min: 0, Max: 1, Doc: "steering towards the mean velocity of the others"},
			{Name: "cohesion", Default: 0.005, Min: 0, Max: 1, Doc: "steering towards the mean place of the others"},
			{Name: "speed_min", Default: 0.05, Min: 0, Max: 1, Doc: "lowest speed of an agent that moves"},
			{Name: "speed_max", Default: 0.1, Min: 1e-4, Max: 1, Doc: "highest speed"},
		},
		weights: func(*Bound, uint64) []float32 { return nil },
	}
	circlesAddressed = &Cell{
		Name: CirclesName, Candidates: BoxCandidates,
		Doc: "the circles of FLAME GPU in the box of `neighbours`, in two or three dimensions: in a tick all others " +
			"within the radius push an agent away below half of it, and draw it near above, by a sine of the " +
			"distance. The agent moves by the mean. The features of an agent are its position, in the unit of the box",
		Params: []Param{
			{Name: "repulsion", Default: 0.025, Min: 0, Max: 1, Doc: "largest way that a push moves an agent in a " +
				"tick, in radii"},
		},
		weights: func(*Bound, uint64) []float32 { return nil },
	}
	colonyAddressed = &Cell{
		Name: ColonyName, Candidates: ColonyCandidates,
		Doc: "agents that die and give birth in the box of `neighbours`, in two or three dimensions. `agents` is how " +
			"many there may be: an agent is alive or empty, and a child takes the place of an empty one. Births " +
			"beyond that are dropped, and counted in `lost`. The features of an agent are its position, in the unit " +
			"of the box; an observation makes it alive there",
		Params: []Param{
			{Name: "birth", Default: 0.1, Min: 0, Max: 1, Doc: "chance in a tick that an agent with fewer than " +
				"`room` others within the radius gives birth"},
			{Name: "room", Default: 8, Min: 0, Max: 1e6, Integer: true, Doc: "others within the radius from which on " +
				"an agent gives no birth"},
			{Name: "death", Default: 0.01, Min: 0, Max: 1, Doc: "chance in a tick that an agent dies"},
			{Name: "hunger", Default: 0, Min: 0, Max: 1, Doc: "what each other within the radius adds to it"},
			{Name: "spread", Default: 0.5, Min: 0, Max: 1, Doc: "largest distance of a child from its parent on each " +
				"axis, in radii"},
			{Name: "first", Default: 1, Min: 0, Max: 1 << 32, Integer: true, Doc: "agents that are alive at first, " +
				"at random places"},
		},
		weights: func(*Bound, uint64) []float32 { return nil },
	}
)

// InBox reports whether the agents of the cell are in a box: boids, circles and colony.
func (a *Addressed) InBox() bool { return a.IsBoids() || a.Cell == circlesAddressed || a.IsColony() }

// IsColony reports whether the cell is colony.
func (a *Addressed) IsColony() bool { return a.Cell == colonyAddressed }

// IsBoids reports whether the cell is boids.
func (a *Addressed) IsBoids() bool { return a.Cell == boidsAddressed }

// BoxFeatures returns the names of the features of a cell whose agents are in a box; nil: they are
// in no box.
func BoxFeatures(cell string, dimensions int) []string {
	switch cell {
	case BoidsName:
		return append([]string{"x", "y", "z"}[:dimensions:dimensions], []string{"vx", "vy", "vz"}[:dimensions]...)
	case CirclesName, ColonyName:
		return []string{"x", "y", "z"}[:dimensions]
	}
	return nil
}

// Dimensions returns the number of dimensions of the box.
func (a *Addressed) Dimensions() int {
	if a.IsBoids() {
		return a.Features / 2
	}
	return a.Features
}

// boxVars lists the state of an agent in a box: kernels find the states at the start of a page, and
// the others behind them.
func (a *Addressed) boxVars() []kernels.Var {
	vars := []kernels.Var{{Name: "state", Elem: kernels.U8, Width: 1}}
	for k, name := range BoxFeatures(a.Cell.Name, a.Dimensions()) {
		v := kernels.Var{Name: name, Elem: kernels.U32, Width: 1}
		if k >= a.Dimensions() {
			v.Elem = kernels.F32
		}
		vars = append(vars, v)
	}
	if a.IsColony() {
		vars = append(vars, kernels.Var{Name: "lost", Elem: kernels.U32, Width: 1, Group: true},
			kernels.Var{Name: "ticks", Elem: kernels.U32, Width: 1, Group: true})
	}
	return vars
}

// boxKernels returns the kernel of a step, and the one that makes first positions.
func (a *Addressed) boxKernels() (step, place string) {
	if a.IsBoids() {
		return spaceset.Boids, spaceset.Place
	}
	if a.IsColony() {
		return spaceset.Colony, spaceset.Place
	}
	return spaceset.Circles, spaceset.Place
}
