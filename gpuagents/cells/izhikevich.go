package cells

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/cuda/kernels/graphset"
)

// IzhikevichName is the cell whose agents are neurons of Izhikevich, on a graph. Their states are
// LIFCandidates.
const IzhikevichName = "izhikevich"

// The variables of an agent of izhikevich, in the order of the layout.
const (
	IzhikevichSpike = iota
	IzhikevichPotential
	IzhikevichRecovery
	IzhikevichCurrent
	IzhikevichTicks // of a group
)

// NeuronType is the numbers of a type of neurons of Izhikevich.
type NeuronType struct {
	Name       string
	A, B, C, D float64
}

// NeuronTypes are the types of E. M. Izhikevich, "Simple model of spiking neurons", 2003, figure 2.
// The first is the default of excitatory agents, and the second the default of inhibitory agents.
var NeuronTypes = []NeuronType{
	{"regular_spiking", 0.02, 0.2, -65, 8},
	{"fast_spiking", 0.1, 0.2, -65, 2},
	{"intrinsically_bursting", 0.02, 0.2, -55, 4},
	{"chattering", 0.02, 0.2, -50, 2},
	{"low_threshold_spiking", 0.02, 0.25, -65, 2},
	{"thalamo_cortical", 0.02, 0.25, -65, 0.05},
	{"resonator", 0.1, 0.26, -65, 2},
}

// Params returns the parameters of the type by name, for excitatory or inhibitory agents. The
// caller owns the map.
func (n NeuronType) Params(inhibitory bool) map[string]float64 {
	before := ""
	if inhibitory {
		before = "inhibitory_"
	}
	return map[string]float64{before + "a": n.A, before + "b": n.B, before + "c": n.C, before + "d": n.D}
}

// izhikevichAddressed has no weights, as lif. Package gpuagents/graph steps it.
var izhikevichAddressed = &Cell{
	Name: IzhikevichName, Candidates: LIFCandidates,
	Doc: "spiking neurons of Izhikevich (2003) on the graph of `neighbours`, whose links go from an agent to those " +
		"that hear it: a spike adds `weight` to their input in the next tick, or after the delay of the link. A tick " +
		"is a millisecond, and potentials are in mV. The feature of an agent is a current, which it holds and hears " +
		"in each tick. " +
		"`cell.neurons` and `cell.inhibitory_neurons` name types, which set `a` to `d`",
	Params: append(typeParams(), []Param{
		{Name: "weight", Default: 0.5, Min: -100, Max: 100, Doc: "weight of the links of an excitatory agent, where " +
			"the file of the graph has none"},
		{Name: "inhibitory", Default: 0, Min: 0, Max: 1, Doc: "share of the agents, the last ones, that inhibit " +
			"others"},
		{Name: "inhibition", Default: 2, Min: 0, Max: 100, Doc: "weight of their links, times minus `weight`"},
		{Name: "noise", Default: 0, Min: 0, Max: 1e6, Doc: "largest random input of an excitatory agent, which is " +
			"uniform from minus to plus this"},
		{Name: "inhibitory_noise", Default: 0, Min: 0, Max: 1e6, Doc: "`noise` of inhibitory agents"},
	}...),
	weights: func(*Bound, uint64) []float32 { return nil },
}

func typeParams() (all []Param) {
	for i, of := range []string{"", "inhibitory_"} {
		t := NeuronTypes[i]
		for _, p := range []Param{
			{Name: "a", Default: t.A, Min: 0, Max: 1, Doc: "part of its distance that the recovery moves in a tick"},
			{Name: "b", Default: t.B, Min: -1, Max: 1, Doc: "recovery for each mV of the potential"},
			{Name: "c", Default: t.C, Min: -100, Max: 0, Doc: "potential after a spike, and at first"},
			{Name: "d", Default: t.D, Min: -100, Max: 100, Doc: "what a spike adds to the recovery"},
		} {
			if i == 1 {
				p.Doc = "`" + p.Name + "` of inhibitory agents"
			}
			p.Name = of + p.Name
			all = append(all, p)
		}
	}
	return all
}

// IsIzhikevich reports whether the cell is izhikevich.
func (a *Addressed) IsIzhikevich() bool { return a.Cell == izhikevichAddressed }

// Spikes reports whether the agents of the cell are neurons on a graph: lif and izhikevich.
func (a *Addressed) Spikes() bool { return a.IsLIF() || a.IsIzhikevich() }

// izhikevichVars lists the state of izhikevich: kernels find the spikes at the start of a page.
func izhikevichVars() []kernels.Var {
	return []kernels.Var{
		IzhikevichSpike:     {Name: "spike", Elem: kernels.U8, Width: 1},
		IzhikevichPotential: {Name: "potential", Elem: kernels.F32, Width: 1},
		IzhikevichRecovery:  {Name: "recovery", Elem: kernels.F32, Width: 1},
		IzhikevichCurrent:   {Name: "current", Elem: kernels.F32, Width: 1},
		IzhikevichTicks:     {Name: "ticks", Elem: kernels.U32, Width: 1, Group: true},
	}
}

// izhikevichKernels returns the kernel of a tick, and the one that carries spikes.
func izhikevichKernels() (tick, push string) { return graphset.Izhikevich, graphset.Push }
