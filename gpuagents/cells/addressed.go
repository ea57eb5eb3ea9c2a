package cells

import (
	"errors"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Addressed is a cell whose agents are addressed one by one, with its parameters, its sizes and its rule fixed: an observation
// is for one agent, all agents share the weights, and each votes for one of Candidates. It does not change.
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
			{Name: "bf16", Default: 0, Min: 0, Max: 1, Integer: true, Doc: "1: units and inputs are kept in bf16, half the memory; 0: in float32"},
		},
	}
	leakyAddressed = &Cell{
		Name: "leaky",
		Doc:  "leaky integrate-and-fire: a potential that a current drives, which an agent's gain multiplies; votes are 0 quiet and 1 spike",
		Params: []Param{
			{Name: "decay", Default: 0.9, Min: 0, Max: 0.9999, Doc: "what is left of the potential after a step"},
			{Name: "threshold", Default: 1, Min: 1e-6, Max: 1e6, Doc: "potential above which an agent spikes; a spike takes so much off it"},
			{Name: "trace", Default: 100, Min: 1, Max: 1e6, Doc: "steps over which an agent averages its spikes"},
		},
	}
)

// Address binds a cell, gru or leaky, whose agents are addressed one by one. values are parameters by name, those left out have
// their defaults; agents is the size of a group, features the width of an agent's inputs. gru takes as many features as its
// units, padded to 8, 16 or 32, and 2..16 candidates. leaky takes one feature, its current, or two: the second is the gain
// above one that multiplies it; it has two candidates. All that is wrong is in one error, an ErrParameter.
func Address(cell string, values map[string]float64, agents, features, candidates int, voting Voting) (*Addressed, error) {
	var c *Cell
	switch cell {
	case "gru":
		c = gruAddressed
	case "leaky":
		c = leakyAddressed
	default:
		return nil, fmt.Errorf("%w: agents of the cell %q cannot be addressed, those of gru and leaky can", ErrParameter, cell)
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
		wrong = append(wrong, fmt.Errorf("%w: %s: %d candidates, want 2 to %d", ErrParameter, cell, candidates, kernels.AgentMostCandidates))
	}
	if c == leakyAddressed && candidates != 2 {
		wrong = append(wrong, fmt.Errorf("%w: %s: %d candidates, want 2: quiet and spike", ErrParameter, cell, candidates))
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

// Shape is how the kernels are launched best: blocks of 128 threads a multiprocessor, and the agents of a span of a tick.
func (a *Addressed) Shape() (blocks, span int) {
	if a.isGRU() {
		return kernels.AgentGRUBlocks(a.class()), kernels.AgentSpan
	}
	return manyBlocks, kernels.AgentSpanLeaky
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
		w[kernels.AgentDecay], w[kernels.AgentThreshold], w[kernels.AgentTraceRate] = a.word("decay"), a.word("threshold"), a.rate("trace")
	}
	return w
}

// Weights is the table of random weights for a swarm's seed: those of torch.nn.GRUCell's and torch.nn.Linear's first
// initialisation in their range, uniform within one over the root of the units. leaky has none.
func (a *Addressed) Weights(seed uint64) []float32 {
	if !a.isGRU() {
		return nil
	}
	H, I, C := a.hidden(), a.Features, a.Candidates
	r, deviation := newSource(seed, sharedAgent), 1/math.Sqrt(3*float64(H))
	draw := func(n int) []float32 {
		v := make([]float32, n)
		for i := range v {
			v[i] = r.spread(deviation)
		}
		return v
	}
	return a.table(GRUWeights{
		InputHidden: draw(3 * H * I), HiddenHidden: draw(3 * H * H), InputBias: draw(3 * H), HiddenBias: draw(3 * H), Readout: draw(C * H), ReadoutBias: draw(C),
	})
}

// GRUWeights are those of a trained network, as PyTorch has them: of torch.nn.GRUCell(I, H) weight_ih, [3H][I], weight_hh, [3H][H],
// bias_ih and bias_hh, [3H], with the gates in the order r, z, n; of torch.nn.Linear(H, C) weight, [C][H], and bias, [C].
type GRUWeights struct {
	InputHidden, HiddenHidden []float32
	InputBias, HiddenBias     []float32
	Readout, ReadoutBias      []float32
}

// Table makes the weights table of trained weights. They have the sizes of the cell, and are finite and at most 128.
func (a *Addressed) Table(w GRUWeights) ([]float32, error) {
	if !a.isGRU() {
		return nil, fmt.Errorf("%w: %s has no weights", ErrParameter, a.Cell.Name)
	}
	H, I, C := a.hidden(), a.Features, a.Candidates
	for _, part := range []struct {
		name string
		have []float32
		want int
	}{
		{"InputHidden", w.InputHidden, 3 * H * I},
		{"HiddenHidden", w.HiddenHidden, 3 * H * H},
		{"InputBias", w.InputBias, 3 * H},
		{"HiddenBias", w.HiddenBias, 3 * H},
		{"Readout", w.Readout, C * H},
		{"ReadoutBias", w.ReadoutBias, C},
	} {
		if len(part.have) != part.want {
			return nil, fmt.Errorf("%w: gru: %s has %d values, want %d for %d units, %d features, %d candidates", ErrParameter, part.name, len(part.have), part.want, H, I, C)
		}
		for i, v := range part.have {
			if !(v >= -kernels.AgentWeight && v <= kernels.AgentWeight) {
				return nil, fmt.Errorf("%w: gru: %s[%d] is %v, want %d at most", ErrParameter, part.name, i, v, kernels.AgentWeight)
			}
		}
	}
	return a.table(w), nil
}

// table brings weights into the order of the kernels, padded to the class; see kernels.AgentGRUWeights.
func (a *Addressed) table(w GRUWeights) []float32 {
	H, I, C, P := a.hidden(), a.Features, a.Candidates, a.class()
	t := make([]float32, kernels.AgentGRUWeights(P, C))
	for gate := range 3 {
		scale := float32(1)
		if gate == 2 {
			scale = 2
		}
		for j := range H {
			row := t[(gate*P+j)*2*P:]
			for k, v := range w.InputHidden[(gate*H+j)*I:][:I] {
				row[k] = scale * v
			}
			for k, v := range w.HiddenHidden[(gate*H+j)*H:][:H] {
				row[P+k] = scale * v
			}
		}
	}
	bias := t[6*P*P:]
	for j := range H {
		b := bias[4*j:]
		b[0], b[1] = w.InputBias[j]+w.HiddenBias[j], w.InputBias[H+j]+w.HiddenBias[H+j]
		b[2], b[3] = 2*w.InputBias[2*H+j], 2*w.HiddenBias[2*H+j]
	}
	readout := bias[4*P:]
	for c := range C {
		copy(readout[c*P:], w.Readout[c*H:][:H])
	}
	copy(readout[C*P:], w.ReadoutBias)
	return t
}
