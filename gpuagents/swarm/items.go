package swarm

import (
	"errors"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
)

// Embed is the embedding of the agents of a gru by agent: an observation has the number of a row,
// and the row are the inputs of the agent. The zero value is none.
type Embed struct {
	// Rows is the number of rows, 1 to kernels.AgentMostRows. An observation has one feature, from 0
	// to Rows-1.
	Rows int `yaml:"rows" json:"rows" zero:"default"`
	// Width is the number of values of a row; default the units of an agent.
	Width int `yaml:"width" json:"width" zero:"default"`
}

// ItemColumn is the column of an observation's item, which no feature of a swarm with items may be
// called by.
const ItemColumn = "item"

// fillEmbed puts the default width into an embedding.
func (c *Cell) fillEmbed() {
	if (c.Embed != Embed{}) {
		setDefault(&c.Embed.Width, c.hidden())
	}
}

// hidden returns the units of an agent of a gru; 0 for another cell.
func (c *Cell) hidden() int {
	cell, ok := cells.LookupAddressed(c.Kind)
	if !ok {
		return 0
	}
	i := slices.IndexFunc(cell.Params, func(p cells.Param) bool { return p.Name == "hidden" })
	if i < 0 {
		return 0
	}
	if hidden, is := c.Params["hidden"]; is {
		return int(hidden)
	}
	return int(cell.Params[i].Default)
}

func (s *Spec) validateItems() (path []string, err error) {
	e, items, most := s.Cell.Embed, s.Cell.Items, kernels.AgentHidden(s.Cell.hidden())
	switch gru := s.Cell.Kind == "gru" && s.Topology().ByAgent; {
	case e != Embed{} && !gru:
		return []string{"cell", "embed"}, errors.New("embed: only a gru whose agents are addressed has an embedding: " +
			"use cell: {kind: gru} and addressed: agent, or leave it out")
	case e != Embed{} && (e.Rows < 1 || e.Rows > kernels.AgentMostRows):
		return []string{"cell", "embed", "rows"}, fmt.Errorf("rows %d: use 1 to %d", e.Rows, kernels.AgentMostRows)
	case e != Embed{} && (e.Width < 1 || e.Width > most):
		return []string{"cell", "embed", "width"}, fmt.Errorf("width %d: use 1 to %d, or more units: an agent has as "+
			"many inputs as units, padded to 8, 16 or 32", e.Width, most)
	case e != Embed{} && len(s.Features) != 1:
		return []string{"features"}, fmt.Errorf("%d features: with cell.embed an observation has one, the number of "+
			"a row", len(s.Features))
	case items != 0 && !gru:
		return []string{"cell", "items"}, errors.New("items: only a gru whose agents are addressed has a readout by " +
			"item: use cell: {kind: gru} and addressed: agent, or leave it out")
	case items < 0 || items > kernels.AgentMostItems:
		return []string{"cell", "items"}, fmt.Errorf("items %d: use 1 to %d, or leave it out", items,
			kernels.AgentMostItems)
	case items > 0 && len(s.Vote.Candidates) != 2:
		return []string{"vote", "candidates"}, fmt.Errorf("%d candidates: with cell.items agents vote between two, "+
			"whether their mean score is above one half: name 2, such as [below, above]", len(s.Vote.Candidates))
	}
	return nil, nil
}

// asking gives a gru its embedding and its items.
func (s *Spec) asking(a *cells.Addressed) (*cells.Addressed, error) {
	var err error
	if s.Cell.Embed.Rows > 0 {
		if a, err = a.Embedding(s.Cell.Embed.Rows); err != nil {
			return nil, err
		}
	}
	if s.Cell.Items > 0 {
		return a.Asking(s.Cell.Items)
	}
	return a, nil
}
