package specdoc

import (
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// cell is a cell that a specification can choose. Its parameters depend on whether groups or agents
// are observed.
type cell struct {
	kind   string
	agents bool // addressed: agent
	doc    string
	params []cells.Param
	names  []string // of the candidates; nil if the specification names them
}

func allCells() []cell {
	var all []cell
	for _, name := range []string{"predictor", "gru", "leaky", "lif", "region"} {
		c, _ := cells.Lookup(name)
		all = append(all, cell{kind: name, doc: c.Doc, params: c.Params, names: c.Candidates})
	}
	for _, name := range []string{
		"gru", "leaky", cells.LifeName, cells.SIRName, cells.LIFName, cells.IzhikevichName, cells.BoidsName,
		cells.CirclesName, cells.ColonyName, cells.QuantumName, cells.TransformerName,
	} {
		c, _ := cells.LookupAddressed(name)
		one := cell{kind: name, agents: true, doc: c.Doc, params: c.Params}
		switch name {
		case "leaky":
			one.names = []string{"quiet", "spike"}
		case cells.LifeName:
			one.names = cells.LifeCandidates
		case cells.SIRName:
			one.names = cells.SIRCandidates
		case cells.LIFName, cells.IzhikevichName:
			one.names = cells.LIFCandidates
		case cells.BoidsName, cells.CirclesName:
			one.names = cells.BoxCandidates
		case cells.ColonyName:
			one.names = cells.ColonyCandidates
		}
		all = append(all, one)
	}
	return append(all, cell{
		kind: cells.CustomName, doc: "a step in CUDA C++ of your own, which defines further parameters",
		params: cells.CustomParams(),
	})
}

// neuronTypes returns the names of the types of neurons of the cell izhikevich.
func neuronTypes() (names []string) {
	for _, t := range cells.NeuronTypes {
		names = append(names, t.Name)
	}
	return names
}
