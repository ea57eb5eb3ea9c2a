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
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
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
	// ErrVote is a variable by which agents of a custom cell on a grid cannot vote.
	ErrVote = errors.New("invalid vote")
	// ErrFeature is a feature that is not a variable of a custom cell on a grid.
	ErrFeature = errors.New("invalid feature")
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
	// Source is the text of the kernel of a custom cell. It is empty for a built-in kernel.
	Source string
	// Learning is the last round in which the decisions of a group rest in part on what is usual in
	// other groups; 0 for a cell that takes nothing from others.
	Learning uint64

	embedding []string // the variables that are an agent's knowledge, see Bound.Embedding

	vars    func(b *Bound) []kernels.Var
	block   func(b *Bound) []uint32
	weights func(b *Bound, seed uint64) []float32
}

// all is constant after start.
var all = map[string]*Cell{
	gru.Name: gru, leaky.Name: leaky, lif.Name: lif, predictor.Name: predictor,
	region.Name: region,
}

// Lookup returns the cell of a name. Custom cells are not among them: Custom makes each.
func Lookup(name string) (*Cell, bool) {
	c, ok := all[name]
	return c, ok
}

// Names lists the cells in alphabetical order.
func Names() []string { return slices.Sorted(maps.Keys(all)) }

// Text returns the text of the observe kernel, built in or custom: it defines what the cell
// computes. Checkpoints compare it to detect a changed cell.
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

// Bound is a cell with its parameters, its size and its rule fixed. The caller of Bind may set Drop
// and Own before the first use; afterwards a Bound does not change and may be used concurrently.
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

// Bind fixes the parameters of a cell; a parameter that is not in values has its default. agents is
// the size of a group, 1 to MaxAgents, and features the width of an observation, 1 to MaxFeatures.
// The error joins an ErrParameter for each mistake. values is not kept.
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

// check returns an ErrParameter if the cell has no parameter of the name, or if the value is out of
// its range. A NaN is out of every range.
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

// nearest returns the name of the parameter with the smallest edit distance to name.
func (c *Cell) nearest(name string) string {
	names := make([]string, len(c.Params))
	for i, p := range c.Params {
		names[i] = p.Name
	}
	return strictyaml.Nearest(name, names)
}

// Layout places the cell's state in pages. It fails if a group does not fit into a page of
// pageBytes. The layout depends on nothing but the receiver and pageBytes, and a checkpoint is
// valid for one layout.
func (b *Bound) Layout(pageBytes int) (kernels.Layout, error) {
	return kernels.NewLayout(b.vars(), b.Agents, pageBytes)
}

// vars returns the variables of the cell, and the variable that detects late and duplicate
// observations.
func (b *Bound) vars() []kernels.Var {
	vars := b.Cell.vars(b)
	if b.Drop != 0 {
		vars = append(vars, kernels.VarLatest)
	}
	return vars
}

// Params returns the parameters of the cell.
func (b *Bound) Params() []Param { return b.Cell.Params }

// Value returns the value of a parameter, as set or by default; 0 for an unknown name.
func (b *Bound) Value(name string) float64 { return b.values[name] }

// ParamBlock returns the parameter block that the kernel reads. The caller owns it. Package kernels
// has the layout of each cell.
func (b *Bound) ParamBlock() []uint32 { return b.Cell.block(b) }

// Weights returns the table of fixed random weights for the seed of a swarm, component-major
// [W][Agents], after the weights that all agents share, if the cell has any. The weights of an
// agent depend only on the seed and on its index in its group. Groups share the table, so a series
// gives the same result in every group, unless Own is set. The table is made with multiplication
// and addition only, so it is the same on every machine.
func (b *Bound) Weights(seed uint64) []float32 { return b.Cell.weights(b, seed) }

// StateBytes returns the size in bytes of the state of one agent, and of the variables that a group
// has once, without padding.
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

func (b *Bound) word(name string) uint32 { return math.Float32bits(float32(b.values[name])) }

// rate is the smoothing rate of a parameter that counts observations.
func (b *Bound) rate(name string) uint32 { return math.Float32bits(float32(1 / b.values[name])) }

func fixed(v float64) uint32 { return uint32(math.Round(v * (1 << 16))) }

// nats is the surprise in nats that gives a score below 1.
func nats(score float64) uint32 {
	return math.Float32bits(float32(kernels.ScoreHalf * score / (1 - score)))
}
