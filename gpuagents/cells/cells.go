// Package cells describes the cells: their parameters, their state, their fixed random weights and
// their kernel. What a cell computes stands in its kernel, twice: cuda/kernels for CUDA and
// cuda/host for the host device. A custom cell's stands in its spec, once.
package cells

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/strictyaml"
)

// Errors of this package.
var (
	// ErrParameter is a parameter that the cell does not have, or a value that it does not take.
	ErrParameter = errors.New("invalid cell parameter")
	// ErrState is a state variable that a custom cell cannot have. What is wrong with its step is a
	// kernels.ErrStep.
	ErrState = errors.New("invalid cell state")
	// ErrEmbedding is an embedding that a custom cell cannot have.
	ErrEmbedding = errors.New("invalid cell embedding")
)

// Limits of what Bind accepts.
const (
	MaxAgents   = 1 << 16 // agents a group
	MaxFeatures = kernels.MaxFeatures
)

// Param is one number that a user may set.
type Param struct {
	Name              string
	Default, Min, Max float64
	Integer           bool
	Doc               string
}

// Cell is the description of one cell. It does not change.
type Cell struct {
	// Name is what a swarm's spec calls it.
	Name string
	// Doc says in a line what it is for.
	Doc string
	// Params in the order in which they are documented.
	Params []Param
	// Candidates are the names of what an agent may vote for, by index.
	Candidates []string
	// Agents is the default number of agents a group.
	Agents int
	// Kernel is the observe kernel's name.
	Kernel string
	// Source is the text of that kernel where it is none of the set: that of a custom cell. Else
	// empty.
	Source string

	embedding []string // the variables that are an agent's knowledge, see Bound.Embedding

	vars    func(b *Bound) []kernels.Var
	block   func(b *Bound) []uint32
	weights func(b *Bound, seed uint64) []float32
}

// all is constant after start.
var all = map[string]*Cell{gru.Name: gru, leaky.Name: leaky, lif.Name: lif, predictor.Name: predictor}

// Lookup returns the cell of that name.
func Lookup(name string) (*Cell, bool) {
	c, ok := all[name]
	return c, ok
}

// Names lists the cells in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Text is the text of the observe kernel, of the set or not: what the cell computes.
func (c *Cell) Text() string {
	if c.Source != "" {
		return c.Source
	}
	src, _ := kernels.Lookup(c.Kernel)
	return src.Code
}

// Voting is how a group decides.
type Voting struct {
	Rule kernels.Rule
	// Quorum is the fraction of all votes that RuleQuorum asks for, in (0, 1].
	Quorum float64
}

// Weighted is the default: the candidate with the most weight wins.
var Weighted = Voting{Rule: kernels.RuleWeighted}

// Bound is a cell with its parameters, its size and its rule fixed.
type Bound struct {
	Cell     *Cell
	Agents   int // agents a group
	Features int // features an observation
	Voting   Voting
	// Drop is what becomes of observations that come late or twice; 0: all are applied. Agents that
	// are addressed have no times.
	Drop kernels.Drop
	// Own says that each group has recurrent weights of its own, which are drawn with its first
	// observation and kept in its state; gru only.
	Own bool

	values map[string]float64
}

// Bind fixes the parameters of a cell; those that values leaves out take their defaults. It reports
// everything that is wrong with its arguments in one error, an ErrParameter.
func (c *Cell) Bind(values map[string]float64, agents, features int, voting Voting) (*Bound, error) {
	b := &Bound{Cell: c, Agents: agents, Features: features, Voting: voting, values: map[string]float64{}}
	for _, p := range c.Params {
		b.values[p.Name] = p.Default
	}
	var wrong []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if err := c.check(name, values[name]); err != nil {
			wrong = append(wrong, err)
			continue
		}
		b.values[name] = values[name]
	}
	if agents < 1 || agents > MaxAgents {
		wrong = append(wrong, fmt.Errorf("%w: %s: %d agents a group, want 1 to %d", ErrParameter, c.Name, agents,
			MaxAgents))
	}
	if features < 1 || features > MaxFeatures {
		wrong = append(wrong, fmt.Errorf("%w: %s: %d features, want 1 to %d", ErrParameter, c.Name, features,
			MaxFeatures))
	}
	switch {
	case voting.Rule > kernels.RuleUnanimous:
		wrong = append(wrong, fmt.Errorf("%w: %s: no voting rule %d", ErrParameter, c.Name, voting.Rule))
	case voting.Rule == kernels.RuleQuorum && !(voting.Quorum > 0 && voting.Quorum <= 1):
		wrong = append(wrong, fmt.Errorf("%w: %s: quorum %v, want above 0 and at most 1", ErrParameter, c.Name,
			voting.Quorum))
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	return b, nil
}

func (c *Cell) check(name string, v float64) error {
	i := slices.IndexFunc(c.Params, func(p Param) bool { return p.Name == name })
	if i < 0 {
		return fmt.Errorf("%w: %s has no parameter %q, did you mean %q?", ErrParameter, c.Name, name, c.nearest(name))
	}
	p := c.Params[i]
	if !(v >= p.Min && v <= p.Max) {
		return fmt.Errorf("%w: %s: %s = %v, want %v to %v", ErrParameter, c.Name, name, v, p.Min, p.Max)
	}
	if p.Integer && v != math.Trunc(v) {
		return fmt.Errorf("%w: %s: %s = %v, want a whole number", ErrParameter, c.Name, name, v)
	}
	return nil
}

// nearest is the parameter whose name takes the fewest edits to reach.
func (c *Cell) nearest(name string) string {
	names := make([]string, len(c.Params))
	for i, p := range c.Params {
		names[i] = p.Name
	}
	return strictyaml.Nearest(name, names)
}

// Layout places the cell's state in pages.
func (b *Bound) Layout(pageBytes int) (kernels.Layout, error) {
	return kernels.NewLayout(b.vars(), b.Agents, pageBytes)
}

// vars are the state variables: those of the cell, and what tells observations that come late or
// twice.
func (b *Bound) vars() []kernels.Var {
	vars := b.Cell.vars(b)
	if b.Drop != 0 {
		vars = append(vars, kernels.VarLatest)
	}
	return vars
}

// Value is the value of a parameter.
func (b *Bound) Value(name string) float64 { return b.values[name] }

// ParamBlock is the parameter block that the kernel reads.
func (b *Bound) ParamBlock() []uint32 { return b.Cell.block(b) }

// Weights is the table of fixed random weights for a swarm's seed, component-major [W][Agents],
// behind what all agents share where a cell has such. An agent's weights depend on the seed and its
// index inside its group alone: groups share the table, so a series means the same whichever group
// watches it, unless Own is set. Only multiplication and addition are used: the table is the same
// on every machine.
func (b *Bound) Weights(seed uint64) []float32 { return b.Cell.weights(b, seed) }

// StateBytes is the size of one agent's state and of one group's, without padding.
func (b *Bound) StateBytes() (agent, group int) {
	for _, v := range b.vars() {
		if v.Group {
			group += v.Width * v.Elem.Bytes()
		} else {
			agent += v.Width * v.Elem.Bytes()
		}
	}
	return agent, group
}

// word is a parameter as a float32 word.
func (b *Bound) word(name string) uint32 { return math.Float32bits(float32(b.values[name])) }

// rate is the smoothing rate of a parameter that counts observations.
func (b *Bound) rate(name string) uint32 { return math.Float32bits(float32(1 / b.values[name])) }

// fixed is a fraction in 16.16 fixed point.
func fixed(v float64) uint32 { return uint32(math.Round(v * (1 << 16))) }

// nats is the surprise in nats that gives a score below 1.
func nats(score float64) uint32 {
	return math.Float32bits(float32(kernels.ScoreHalf * score / (1 - score)))
}
