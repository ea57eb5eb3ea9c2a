package agents

import (
	"context"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/fault"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// tellWarps is how many warps of agent_tell a multiprocessor is given. Each has a group at a time, and
// reads the rows of its agents one after another: fewer leave reads of memory waiting.
const tellWarps = 64

// launchTell updates the knowledge nodes of the groups of consecutive pages, and writes what their
// agents hear of them, as they are before the next step. It does nothing if they hear nothing. Groups
// are within a page, so pages may be told one set after another.
func (a *Agents) launchTell(pages []uint64) error {
	if a.tell == nil {
		return nil
	}
	const threads = 128
	args := append(a.head(false), device.Uint32(uint32(pages[0])), device.Uint32(uint32(len(pages))))
	for _, w := range a.cell.TellWords() {
		args = append(args, device.Uint32(w))
	}
	blocks := (len(pages)*a.layout.Slots*32 + threads - 1) / threads
	return a.stream.Launch(a.tell, a.shape(tellWarps*32/threads, threads, blocks), args...)
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
