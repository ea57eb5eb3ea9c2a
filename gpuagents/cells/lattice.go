package cells

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/lattice"
)

// Lattice is a custom cell on a grid or a graph as a user writes it.
type Lattice struct {
	// State has the type of each variable of an agent by name: f32, bf16, u32, u8 or u64.
	State map[string]string
	// Params are the parameters of the step with their defaults.
	Params map[string]float64
	// Hear are the reductions over neighbours that the step sees.
	Hear []lattice.Term
	// Step is its text in CUDA C++.
	Step string
	// Vote is the variable by which an agent votes; empty: the first one in alphabetical order. An
	// agent votes for the candidate whose number is the value of the variable, and for the last one of
	// Candidates, 2 to lattice.MaxCandidates, if the value is larger. A float has two: 0, and all
	// else.
	Vote       string
	Candidates int
	// Dimensions of the grid are 2 or 3, and 0 of a graph. With Faces, neighbours share a face. With
	// Periodic, the first and the last agents on each axis are neighbours.
	Dimensions      int
	Faces, Periodic bool
	// Features names the variables that an observation sets; nil: all, in alphabetical order.
	Features []string
	// Agents is the size of a group.
	Agents int
}

// LatticeCandidates are the candidates of a custom cell on a grid that names none: the variable by
// which it votes is 0, or it is not.
var LatticeCandidates = []string{"zero", "set"}

// AddressLattice returns a custom cell whose agents are on a grid or a graph. State and parameters
// are in alphabetical order, whatever the order of the specification, so the same specification
// gives the same layout. The error is an ErrState, an ErrParameter, a lattice.ErrHear or a
// kernels.ErrStep. The step is not compiled here.
func AddressLattice(of Lattice) (*Addressed, error) {
	vars, err := latticeVars(of.State)
	if err != nil {
		return nil, err
	}
	if of.Vote == "" {
		of.Vote = vars[0].Name
	}
	cell := lattice.Cell{
		Vars: vars, Hear: of.Hear, Vote: of.Vote, Candidates: of.Candidates, Dimensions: of.Dimensions, Faces: of.Faces,
		Periodic: of.Periodic, Step: of.Step,
	}
	if err := checkVote(of, vars); err != nil {
		return nil, err
	}
	c := &Cell{
		Name: CustomName, Doc: "a cell on a grid or a graph whose step its user has written",
		weights: func(*Bound, uint64) []float32 { return nil },
	}
	c.Kernel, _ = cell.Signature()
	for _, name := range slices.Sorted(maps.Keys(of.Params)) {
		if err := kernels.CustomName(name); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrParameter, err)
		}
		cell.Params = append(cell.Params, name)
		c.Params = append(c.Params, Param{
			Name: name, Default: of.Params[name], Min: -math.MaxFloat32, Max: math.MaxFloat32, Doc: "of the step",
		})
	}
	if n := len(c.Params); n > kernels.MaxCustomParams {
		return nil, fmt.Errorf("%w: %d parameters, want %d at most", ErrParameter, n, kernels.MaxCustomParams)
	}
	if c.Source, err = cell.Source(); err != nil {
		return nil, err
	}
	settable, err := latticeFeatures(of, vars)
	if err != nil {
		return nil, err
	}
	b, err := c.Bind(of.Params, of.Agents, len(settable), Voting{})
	if err != nil {
		return nil, err
	}
	return &Addressed{Bound: b, Candidates: of.Candidates, lattice: &onLattice{
		vars: cell.Layout(), settable: settable,
		voted: slices.IndexFunc(vars, func(v kernels.Var) bool { return v.Name == of.Vote }),
	}}, nil
}

type onLattice struct {
	vars     []kernels.Var
	settable []int // the variables that an observation sets, by their places in vars
	voted    int   // the variable by which agents vote
}

// latticeVars returns the variables of an agent. The error is an ErrState.
func latticeVars(state map[string]string) (vars []kernels.Var, err error) {
	switch n := len(state); {
	case n == 0:
		return nil, fmt.Errorf("%w: an agent has no variable: write state: {alive: u8}, or the variables that the "+
			"step reads and writes", ErrState)
	case n > lattice.MaxVars:
		return nil, fmt.Errorf("%w: %d variables, want %d at most on a grid", ErrState, n, lattice.MaxVars)
	}
	if vars, err = customVars(state); err != nil {
		return nil, err
	}
	for _, v := range vars {
		switch {
		case v.Width > 1:
			return nil, fmt.Errorf("%w: %s: agents that hear neighbours have no arrays: write a variable for each "+
				"element", ErrState, v.Name)
		case v.Name == lattice.Ticks.Name:
			return nil, fmt.Errorf("%w: %s: the number of ticks of a group is called so: choose another name", ErrState,
				v.Name)
		}
	}
	return vars, nil
}

// checkVote returns an error unless agents can vote by the variable between the candidates.
func checkVote(of Lattice, vars []kernels.Var) error {
	if n := of.Candidates; n < 2 || n > lattice.MaxCandidates {
		return fmt.Errorf("%w: %d candidates, want 2 to %d", ErrVote, n, lattice.MaxCandidates)
	}
	i := slices.IndexFunc(vars, func(v kernels.Var) bool { return v.Name == of.Vote })
	switch {
	case i < 0:
		return fmt.Errorf("%w: by: the state has no variable %q", ErrVote, of.Vote)
	case (vars[i].Elem == kernels.F32 || vars[i].Elem == kernels.BF16) && of.Candidates > 2:
		return fmt.Errorf("%w: by: %s is a float, by which agents vote between two candidates, 0 and all else, and "+
			"not %d: name a variable of u8, u32 or u64 that the step sets", ErrVote, of.Vote, of.Candidates)
	}
	return nil
}

// latticeFeatures returns the variables that observations set. The error is an ErrFeature.
func latticeFeatures(of Lattice, vars []kernels.Var) (all []int, err error) {
	if of.Features == nil {
		for i := range vars {
			all = append(all, i)
		}
	}
	for _, name := range of.Features {
		i := slices.IndexFunc(vars, func(v kernels.Var) bool { return v.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%w: %q: an observation sets variables of an agent, and the state has none of this "+
				"name", ErrFeature, name)
		}
		all = append(all, i)
	}
	return all, nil
}

// OnLattice reports whether the cell is a custom one, whose agents are on a grid or a graph.
func (a *Addressed) OnLattice() bool { return a.lattice != nil }

// Settable returns the variables that an observation sets, by their places in Vars. The caller does
// not change the slice.
func (a *Addressed) Settable() []int { return a.lattice.settable }

// Voted returns the variable by which agents vote, by its place in Vars.
func (a *Addressed) Voted() int { return a.lattice.voted }

// LatticeBlock returns the parameter block of a custom cell on a grid.
func (a *Addressed) LatticeBlock(seed uint64) []uint32 {
	w := []uint32{uint32(seed), uint32(seed >> 32)}
	for _, p := range a.Cell.Params {
		w = append(w, a.word(p.Name))
	}
	return w
}
