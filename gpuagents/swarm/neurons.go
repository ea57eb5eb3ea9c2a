package swarm

import (
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
)

func spikes(s *Spec) bool { return s.Cell.Kind == cells.LIFName || s.Cell.Kind == cells.IzhikevichName }

// fillNeurons puts the parameters of the types of neurons that the cell names, and that it does not
// have itself, into Params. Names that are not known add nothing.
func (c *Cell) fillNeurons() {
	for inhibitory, name := range map[bool]string{false: c.Neurons, true: c.InhibitoryNeurons} {
		i := slices.IndexFunc(cells.NeuronTypes, func(t cells.NeuronType) bool { return t.Name == name })
		if i < 0 || c.Kind != cells.IzhikevichName {
			continue
		}
		if c.Params == nil {
			c.Params = map[string]float64{}
		}
		for param, v := range cells.NeuronTypes[i].Params(inhibitory) {
			if _, is := c.Params[param]; !is {
				c.Params[param] = v
			}
		}
	}
}

func (s *Spec) validateNeurons() (path []string, err error) {
	var known []string
	for _, t := range cells.NeuronTypes {
		known = append(known, t.Name)
	}
	for _, k := range []struct{ key, name string }{
		{"neurons", s.Cell.Neurons}, {"inhibitory_neurons", s.Cell.InhibitoryNeurons},
	} {
		switch path = []string{"cell", k.key}; {
		case k.name == "":
		case s.Cell.Kind != cells.IzhikevichName:
			return path, fmt.Errorf("%s: it is for the cell izhikevich: write cell: {kind: izhikevich}, or leave it "+
				"out", k.key)
		case !slices.Contains(known, k.name):
			return path, fmt.Errorf("%s %q: did you mean %q? There are %v", k.key, k.name,
				strictyaml.Nearest(k.name, known), known)
		}
	}
	return nil, nil
}
