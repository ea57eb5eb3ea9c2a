package agents

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// keptBytes returns the size of what ticks keep of the nodes of groups.
func (a *Agents) keptBytes() int64 {
	if a.cell.Nodes() == 0 || !kernels.AgentKeeps(a.cell.Agents) {
		return 4 // any memory
	}
	return 4 * (kernels.AgentMostNode + 1) * int64(a.groups)
}

// Knowledge returns the knowledge nodes of groups, Cell().Nodes() units of each, and how often each was
// updated. Agents without nodes have none.
func (a *Agents) Knowledge(ctx context.Context, groups []uint32) (nodes []float32, updates []uint64, err error) {
	width := a.cell.Nodes()
	if width == 0 {
		return nil, make([]uint64, len(groups)), nil
	}
	nodes, updates = make([]float32, len(groups)*width), make([]uint64, len(groups))
	if err := a.stream.Sync(ctx); err != nil {
		return nil, nil, fault.Mark(err)
	}
	parts := make([]pager.Part, 0, 2*len(groups))
	for i, g := range groups {
		page, slot := int(g)/a.layout.Slots, int(g)%a.layout.Slots
		parts = append(parts,
			a.part(page, kernels.AgentVarKnowledge, slot, device.Bytes(nodes[i*width:][:width])),
			a.part(page, kernels.AgentVarUpdates, slot, device.Bytes(updates[i:i+1])))
	}
	return nodes, updates, a.memory.ReadAll(ctx, parts)
}
