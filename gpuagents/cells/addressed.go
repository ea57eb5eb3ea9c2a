package cells

import (
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// Addressed is a cell whose agents are addressed one by one, with its parameters, its sizes and its
// rule fixed. An observation is for one agent, all agents share the weights, and each agent votes
// for one of Candidates. An Addressed does not change and may be used concurrently.
type Addressed struct {
	*Bound
	// Candidates is how many an agent votes between.
	Candidates int
	// Hears is the number of inputs behind the features that all agents hear; see Hearing.
	Hears int
	// Rows is the number of rows of the embedding, 0 without one, and Items the number of items, 0
	// without a readout by item; see Embedding and Asking.
	Rows, Items int
	told        *Told // nil: agents hear nothing of their group
	// remembers says that neurons have the bits of their last spikes; see Remembering.
	remembers bool
	lattice   *onLattice      // nil: a built-in cell
	circuit   *quantumCircuit // nil: not the cell quantum
}

// The cells with agents that are addressed. Their parameters are their own.
var (
	gruAddressed = &Cell{
		Name: "gru",
		Doc:  "torch.nn.GRUCell with weights that all agents share, and a readout whose largest element is the vote",
		Params: []Param{
			{Name: "hidden", Default: 8, Min: 1, Max: kernels.AgentMostHidden, Integer: true, Doc: "units of an agent"},
			{Name: "bf16", Default: 0, Min: 0, Max: 1, Integer: true, Doc: "1: units and inputs are kept in bf16, " +
				"half the memory; 0: in float32"},
		},
	}
	leakyAddressed = &Cell{
		Name: "leaky", Candidates: []string{"quiet", "spike"},
		Doc: "leaky integrate-and-fire: a potential that a current drives, which an agent's gain multiplies; votes " +
			"are 0 quiet and 1 spike",
		Params: []Param{
			{Name: "decay", Default: 0.9, Min: 0, Max: 0.9999, Doc: "part of the potential that remains after a step"},
			{Name: "threshold", Default: 1, Min: 1e-6, Max: 1e6, Doc: "potential above which an agent spikes; a " +
				"spike takes so much off it"},
			{Name: "trace", Default: 100, Min: 1, Max: 1e6, Doc: "steps over which an agent averages its spikes"},
		},
	}
)

// LookupAddressed returns the cell of a name whose agents can be addressed one by one: gru, leaky,
// life, sir, lif, izhikevich, boids, circles, colony, quantum or transformer. A cell of the same
// name that Lookup returns has other parameters.
func LookupAddressed(name string) (*Cell, bool) {
	for _, c := range []*Cell{
		gruAddressed, leakyAddressed, lifeAddressed, sirAddressed, lifAddressed, izhikevichAddressed, boidsAddressed,
		circlesAddressed, colonyAddressed, quantumAddressed, transformerAddressed,
	} {
		if c.Name == name {
			return c, true
		}
	}
	return nil, false
}

// Address binds a cell of LookupAddressed but quantum and transformer, whose agents are addressed
// one by one.
// values are parameters by name; the others have their defaults. agents is the size of a group,
// features the width of an agent's inputs. gru takes as many features as its units, padded to 8, 16
// or 32, and 2 to 16 candidates. leaky takes one or two features: its current, and the gain above
// one that multiplies it. It has two candidates. life, sir, lif and izhikevich take one feature,
// boids 4 or 6, for two and for three dimensions, and circles and colony 2 or 3. They have the
// candidates of their states. The error joins an ErrParameter for each mistake. values is not kept.
func Address(cell string, values map[string]float64, agents, features, candidates int, voting Voting) (*Addressed,
	error,
) {
	c, ok := LookupAddressed(cell)
	if !ok || c == quantumAddressed || c == transformerAddressed {
		return nil, fmt.Errorf("%w: agents of the cell %q cannot be addressed, agents of gru, leaky, life, "+
			"sir, lif, izhikevich, boids, circles and colony can", ErrParameter, cell)
	}
	b, err := c.Bind(values, agents, features, voting)
	wrong := []error{err}
	if err == nil {
		most := kernels.AgentLeakyFeatures
		if c == gruAddressed {
			most = kernels.AgentHidden(b.hidden())
		}
		if c.hearsNeighbours() {
			most = 1
		}
		if box := BoxFeatures(cell, 3); box != nil {
			if plane := len(BoxFeatures(cell, 2)); features == plane {
				most = plane
			} else if most = len(box); features < most {
				wrong = append(wrong, fmt.Errorf("%w: %s: %d features, want %d in two dimensions, or %d", ErrParameter,
					cell, features, plane, most))
			}
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
	if own := c.Candidates; c.hearsNeighbours() && candidates != len(own) {
		wrong = append(wrong, fmt.Errorf("%w: %s: %d candidates, want %d: %v", ErrParameter, cell, candidates, len(own),
			own))
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	return &Addressed{Bound: b, Candidates: candidates}, nil
}

// HearsNeighbours reports whether the agents of the cell have neighbours, whom they hear in ticks:
// life, sir, lif, izhikevich, boids, circles and colony, and custom ones.
func (a *Addressed) HearsNeighbours() bool { return a.OnLattice() || a.Cell.hearsNeighbours() }

func (c *Cell) hearsNeighbours() bool {
	return c != gruAddressed && c != leakyAddressed && c.Name != QuantumName
}

func (a *Addressed) isGRU() bool { return a.Cell == gruAddressed }

// class returns the units of an agent padded to a size for which there is a kernel: 8, 16 or 32.
func (a *Addressed) class() int { return kernels.AgentHidden(a.hidden()) }

func (a *Addressed) elem() kernels.Elem {
	if a.values["bf16"] == 1 {
		return kernels.BF16
	}
	return kernels.F32
}

// Kernels returns the names of the kernel that steps all agents and of the kernel that steps the
// addressed ones. For life, both step all agents, and the grid chooses one. For sir, the second one
// makes links. For agents in a box, the second one places them.
func (a *Addressed) Kernels() (tick, step string) {
	if a.IsLife() {
		return lifeKernels()
	}
	if a.IsSIR() {
		return sirKernels()
	}
	if a.IsLIF() {
		return a.sending(lifKernels())
	}
	if a.IsIzhikevich() {
		return a.sending(izhikevichKernels())
	}
	if a.InBox() {
		return a.boxKernels()
	}
	if a.Measures() {
		return kernels.AgentQuantumName("tick", a.Qubits()), kernels.AgentQuantumName("step", a.Qubits())
	}
	if !a.isGRU() {
		return "leaky_tick", "leaky_step"
	}
	tick = "tick"
	if a.Tells() {
		tick = "told"
	}
	return kernels.AgentGRUName(tick, a.class(), a.elem()), kernels.AgentGRUName("step", a.class(), a.elem())
}

// Shape returns the launch parameters that measured best: blocks per multiprocessor, threads per
// block of a tick, and agents per span. The blocks of other kernels have 128 threads.
func (a *Addressed) Shape() (blocks, threads, span int) {
	if a.isGRU() {
		return kernels.AgentGRUBlocks, 128, kernels.AgentSpan
	}
	if a.Measures() {
		return manyBlocks, kernels.QuantumBlock, kernels.QuantumSpan
	}
	return manyBlocks, kernels.AgentLeakyBlock, kernels.AgentSpanLeaky
}

// manyBlocks is for kernels whose blocks prepare little, so that many small blocks balance the
// load.
const manyBlocks = 64

// Vars returns the state variables, in the order of the layout.
func (a *Addressed) Vars() []kernels.Var {
	if a.OnLattice() {
		return a.lattice.vars
	}
	if a.IsLife() {
		return lifeVars()
	}
	if a.IsSIR() {
		return sirVars()
	}
	if a.IsLIF() {
		return a.withHistory(lifVars())
	}
	if a.IsIzhikevich() {
		return a.withHistory(izhikevichVars())
	}
	if a.InBox() {
		return a.boxVars()
	}
	if a.isGRU() {
		return a.withNodes(kernels.AgentGRUVars(a.class(), a.Candidates, a.elem()))
	}
	if a.Measures() {
		return kernels.AgentQuantumVars(a.Qubits(), a.Candidates)
	}
	return kernels.AgentLeakyVars()
}

// Layout places the state in pages of pageBytes. It fails if a group does not fit into a page.
func (a *Addressed) Layout(pageBytes int) (kernels.Layout, error) {
	return kernels.NewLayout(a.Vars(), a.Agents, pageBytes)
}

// RowLayout returns the layout of a page with whole rows of a grid. width is the number of agents
// of a row, a multiple of the group.
func (a *Addressed) RowLayout(pageBytes int, width int64) (kernels.Layout, error) {
	l, err := a.Layout(pageBytes)
	if err != nil {
		return l, err
	}
	row := int(width) / a.Agents
	if l.Slots < row {
		return l, fmt.Errorf("a page of %d bytes has %d agents, and a row of the grid %d: use larger pages, or a "+
			"smaller width", pageBytes, l.Slots*l.Agents, width)
	}
	l.Slots -= l.Slots % row
	return l, nil
}

// ParamBlock returns the parameter block that the kernels read, of kernels.AgentWords words, or
// kernels.QuantumWords. The caller owns it.
func (a *Addressed) ParamBlock() []uint32 {
	w := make([]uint32, kernels.AgentWords)
	if a.Measures() {
		w = make([]uint32, kernels.QuantumWords)
	}
	w[kernels.AgentCandidates], w[kernels.AgentFeatures] = uint32(a.Candidates), uint32(a.Features)
	w[kernels.AgentRule], w[kernels.AgentQuorum] = uint32(a.Voting.Rule), fixed(a.Voting.Quorum)
	if a.Cell == leakyAddressed {
		w[kernels.AgentDecay], w[kernels.AgentThreshold], w[kernels.AgentTraceRate] = a.word("decay"),
			a.word("threshold"), a.rate("trace")
	}
	return w
}
