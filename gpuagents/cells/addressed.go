package cells

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Addressed is a cell whose agents are addressed one by one, with its parameters, its sizes and its
// rule fixed: an observation is for one agent, all agents share the weights, and each votes for one
// of Candidates. It does not change.
type Addressed struct {
	*Bound
	// Candidates is how many an agent votes between.
	Candidates int
}

// The cells with agents that are addressed. Their parameters are their own.
var (
	gruAddressed = &Cell{
		Name: "gru",
		Doc:  "torch.nn.GRUCell with weights that all agents share, and a readout of which the largest is the vote",
		Params: []Param{
			{Name: "hidden", Default: 8, Min: 1, Max: kernels.AgentMostHidden, Integer: true, Doc: "units of an agent"},
			{Name: "bf16", Default: 0, Min: 0, Max: 1, Integer: true, Doc: "1: units and inputs are kept in bf16, " +
				"half the memory; 0: in float32"},
		},
	}
	leakyAddressed = &Cell{
		Name: "leaky",
		Doc: "leaky integrate-and-fire: a potential that a current drives, which an agent's gain multiplies; votes " +
			"are 0 quiet and 1 spike",
		Params: []Param{
			{Name: "decay", Default: 0.9, Min: 0, Max: 0.9999, Doc: "what is left of the potential after a step"},
			{Name: "threshold", Default: 1, Min: 1e-6, Max: 1e6, Doc: "potential above which an agent spikes; a " +
				"spike takes so much off it"},
			{Name: "trace", Default: 100, Min: 1, Max: 1e6, Doc: "steps over which an agent averages its spikes"},
		},
	}
)

// Address binds a cell, gru or leaky, whose agents are addressed one by one. values are parameters
// by name, those left out have their defaults; agents is the size of a group, features the width of
// an agent's inputs. gru takes as many features as its units, padded to 8, 16 or 32, and 2..16
// candidates. leaky takes one feature, its current, or two: the second is the gain above one that
// multiplies it; it has two candidates. All that is wrong is in one error, an ErrParameter.
func Address(cell string, values map[string]float64, agents, features, candidates int, voting Voting) (*Addressed,
	error,
) {
	var c *Cell
	switch cell {
	case "gru":
		c = gruAddressed
	case "leaky":
		c = leakyAddressed
	default:
		return nil, fmt.Errorf("%w: agents of the cell %q cannot be addressed, those of gru and leaky can",
			ErrParameter, cell)
	}
	b, err := c.Bind(values, agents, features, voting)
	wrong := []error{err}
	if err == nil {
		most := kernels.AgentLeakyFeatures
		if c == gruAddressed {
			most = kernels.AgentHidden(b.hidden())
		}
		if features > most {
			wrong = append(wrong, fmt.Errorf("%w: %s: %d features, want 1 to %d", ErrParameter, cell, features, most))
		}
	}
	if c == gruAddressed && (candidates < 2 || candidates > kernels.AgentMostCandidates) {
		wrong = append(wrong, fmt.Errorf("%w: %s: %d candidates, want 2 to %d", ErrParameter, cell, candidates,
			kernels.AgentMostCandidates))
	}
	if c == leakyAddressed && candidates != 2 {
		wrong = append(wrong, fmt.Errorf("%w: %s: %d candidates, want 2: quiet and spike", ErrParameter, cell,
			candidates))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return &Addressed{Bound: b, Candidates: candidates}, nil
}

func (a *Addressed) isGRU() bool { return a.Cell == gruAddressed }

func (a *Addressed) class() int { return kernels.AgentHidden(a.hidden()) }

func (a *Addressed) elem() kernels.Elem {
	if a.values["bf16"] == 1 {
		return kernels.BF16
	}
	return kernels.F32
}

// Kernels are the names of the kernels that step all agents and those addressed.
func (a *Addressed) Kernels() (tick, step string) {
	if !a.isGRU() {
		return "leaky_tick", "leaky_step"
	}
	return kernels.AgentGRUName("tick", a.class(), a.elem()), kernels.AgentGRUName("step", a.class(), a.elem())
}

// Shape is how the kernels are launched best: blocks a multiprocessor, the threads of those of a
// tick, and the agents of its spans. Others have 128 threads.
func (a *Addressed) Shape() (blocks, threads, span int) {
	if a.isGRU() {
		return kernels.AgentGRUBlocks, 128, kernels.AgentSpan
	}
	return manyBlocks, kernels.AgentLeakyBlock, kernels.AgentSpanLeaky
}

// manyBlocks even out what blocks that have little to prepare do.
const manyBlocks = 64

// Vars lists the state.
func (a *Addressed) Vars() []kernels.Var {
	if a.isGRU() {
		return kernels.AgentGRUVars(a.class(), a.Candidates, a.elem())
	}
	return kernels.AgentLeakyVars()
}

// Layout places the state in pages.
func (a *Addressed) Layout(pageBytes int) (kernels.Layout, error) {
	return kernels.NewLayout(a.Vars(), a.Agents, pageBytes)
}

// ParamBlock is the parameter block that the kernels read.
func (a *Addressed) ParamBlock() []uint32 {
	w := make([]uint32, kernels.AgentWords)
	w[kernels.AgentCandidates], w[kernels.AgentFeatures] = uint32(a.Candidates), uint32(a.Features)
	w[kernels.AgentRule], w[kernels.AgentQuorum] = uint32(a.Voting.Rule), fixed(a.Voting.Quorum)
	if !a.isGRU() {
		w[kernels.AgentDecay], w[kernels.AgentThreshold], w[kernels.AgentTraceRate] = a.word("decay"),
			a.word("threshold"), a.rate("trace")
	}
	return w
}
