package gpuagents

import (
	"context"
	"fmt"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// page is the page of an agent.
func (a *Agents) page(id uint32) int { return int(id) / a.layout.Agents / a.layout.Slots }

// reset makes all agents such as have seen nothing.
func (a *Agents) reset() error {
	for _, b := range []device.Buffer{a.arena, a.stamps, a.scratch, a.decisions} {
		if err := b.Fill(0, b.Size(), 0); err != nil {
			return fmt.Errorf("%w: %w", ErrDevice, err)
		}
	}
	return nil
}

// recount makes the tally of the swarm that of the groups, when pages were written from elsewhere.
func (a *Agents) recount() error {
	tally := make([]uint64, kernels.AgentMostCandidates)
	counts := make([]uint32, a.layout.Slots*a.cell.Candidates)
	for page := range a.pages {
		if err := a.arena.Read(a.at(page, kernels.AgentVarCounts, 0), device.Bytes(counts)); err != nil {
			return fmt.Errorf("%w: %w", ErrDevice, err)
		}
		for i, n := range counts { // of slots behind the last group: zeros
			tally[i%a.cell.Candidates] += uint64(n)
		}
	}
	if err := a.scratch.Write(8*kernels.AgentTally, device.Bytes(tally)); err != nil {
		return fmt.Errorf("%w: %w", ErrDevice, err)
	}
	return nil
}

// at is the byte of the arena at which element number i of a variable of a page begins. Elements are those of one agent, or group.
func (a *Agents) at(page, v, i int) int64 {
	of := a.layout.Vars[v]
	return int64(page)*int64(a.layout.PageBytes) + int64(a.layout.Offsets[v]) + int64(i)*int64(of.Width*of.Elem.Bytes())
}

// stateVars are the variables that an agent is told by, and how many elements of each.
func (a *Agents) stateVars() (vars []int, width int) {
	if a.cell.Cell.Name == "leaky" {
		return []int{kernels.AgentVarPotential, kernels.AgentVarTrace}, 1
	}
	return []int{kernels.AgentVarRow}, int(a.cell.Value("hidden")) // without what pads them, and the inputs
}

// stateWidth is how many values agentStates has for an agent.
func (a *Agents) stateWidth() int {
	vars, width := a.stateVars()
	return len(vars) * width
}

// agentStates reads what agents are. Those whose ids follow one another are read together.
func (a *Agents) agentStates(ctx context.Context, ids []uint32) (*batch.AgentStates, error) {
	vars, width := a.stateVars()
	out := &batch.AgentStates{Agent: ids, Vote: make([]uint8, len(ids)), Width: len(vars) * width, State: make([]float32, len(ids)*len(vars)*width)}
	if err := a.stream.Sync(ctx); err != nil {
		return nil, err
	}
	size := a.layout.Agents * a.layout.Slots // agents of a page
	for first, n := 0, 0; first < len(ids); first += n {
		for n = 1; first+n < len(ids) && ids[first+n] == ids[first]+uint32(n) && a.page(ids[first+n]) == a.page(ids[first]); n++ {
		}
		page, at := a.page(ids[first]), int(ids[first])%size
		votes := out.Vote[first:][:n]
		if err := a.arena.Read(a.at(page, kernels.AgentVarVote, at), votes); err != nil {
			return nil, err
		}
		for i, v := range votes { // 0 has never stepped, and is NoVote by the wrap
			votes[i] = v - 1
		}
		for k, v := range vars {
			of := a.layout.Vars[v]
			data := make([]byte, n*of.Width*of.Elem.Bytes())
			if err := a.arena.Read(a.at(page, v, at), data); err != nil {
				return nil, err
			}
			for i := range n {
				for j := range width {
					to := &out.State[(first+i)*out.Width+k*width+j]
					if e := i*of.Width + j; of.Elem == kernels.BF16 {
						*to = device.FromBF16(device.Of[uint16](data)[e])
					} else {
						*to = device.Of[float32](data)[e]
					}
				}
			}
		}
	}
	return out, nil
}

// groupStates reads what groups are.
func (a *Agents) groupStates(ctx context.Context, ids []uint32) (*batch.GroupStates, error) {
	C := a.cell.Candidates
	out := &batch.GroupStates{
		Group: ids, Decision: make([]uint8, len(ids)), Round: make([]uint64, len(ids)), Counts: make([]uint32, len(ids)*C), Candidates: C,
	}
	// The kernels' fraction; the smallest that is not zero asks no more of a group than zero does: a vote.
	words := a.cell.ParamBlock()
	rule := consensus.Rule{Kind: consensus.Kind(words[kernels.AgentRule])}
	if rule.Kind == consensus.Quorum {
		rule.Quorum = consensus.Fraction{Num: max(1, words[kernels.AgentQuorum]), Den: 1 << 16}
	}
	tally, err := consensus.NewTally(C)
	if err != nil {
		return nil, err
	}
	if err := a.stream.Sync(ctx); err != nil {
		return nil, err
	}
	for i, id := range ids {
		page, slot, counts := int(id)/a.layout.Slots, int(id)%a.layout.Slots, out.Counts[i*C:][:C]
		if err := a.arena.Read(a.at(page, kernels.AgentVarCounts, slot), device.Bytes(counts)); err != nil {
			return nil, err
		}
		if err := a.arena.Read(a.at(page, kernels.AgentVarRound, slot), device.Bytes(out.Round[i:i+1])); err != nil {
			return nil, err
		}
		tally.Total = 0
		for c, n := range counts {
			tally.Counts[c] = uint64(n)
			tally.Total += uint64(n)
		}
		winner, err := rule.Winner(&tally)
		if err != nil {
			return nil, err
		}
		out.Decision[i] = batch.NoVote
		if winner != consensus.None {
			out.Decision[i] = uint8(winner)
		}
	}
	return out, nil
}
