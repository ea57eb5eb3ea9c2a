package agents

import (
	"context"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

func (a *Agents) page(id uint32) int { return int(a.perPage.of(id)) }

// Reset sets all agents to their initial state.
func (a *Agents) Reset(ctx context.Context) error {
	a.fresh, a.nodes.known = false, false
	if err := a.stream.Sync(ctx); err != nil {
		return gpubatch.Mark(err)
	}
	if err := a.memory.Reset(ctx); err != nil {
		return err
	}
	err := a.marks.close() // a failed batch may have left some
	if a.marks = nil; err != nil {
		return gpubatch.Failed(err)
	}
	for _, b := range []device.Buffer{a.stamps, a.scratch, a.decisions} {
		if err := b.Fill(0, b.Size(), 0); err != nil {
			return gpubatch.Failed(err)
		}
	}
	a.inconsistent = nil
	return nil
}

const recountPages = 64

// Recount makes the tally of the swarm the sum of the counts of the groups. It is called after
// pages were opened or written.
func (a *Agents) Recount(ctx context.Context) error {
	a.fresh, a.nodes.known = false, false
	tally := make([]uint64, kernels.AgentMostCandidates)
	counts := make([]uint32, recountPages*a.layout.Slots*a.cell.Candidates)
	for first := 0; first < a.pages; first += recountPages {
		clear(counts)
		var parts []pager.Part
		for page := first; page < min(first+recountPages, a.pages); page++ {
			n := a.layout.Slots * a.cell.Candidates
			parts = append(parts, a.part(page, kernels.AgentVarCounts, 0, device.Bytes(counts[(page-first)*n:][:n])))
		}
		if err := a.memory.ReadAll(ctx, parts); err != nil {
			return err
		}
		for i, n := range counts { // slots after the last group have zeros
			tally[i%a.cell.Candidates] += uint64(n)
		}
	}
	return gpubatch.Failed(a.scratch.Write(8*kernels.AgentTally, device.Bytes(tally)))
}

// part returns the location of elements of a variable in a page. i is the first element; each
// element belongs to one agent or group.
func (a *Agents) part(page, v, i int, to []byte) pager.Part {
	of := a.layout.Vars[v]
	return pager.Part{
		Page:  uint64(page),
		Off:   int64(a.layout.Offsets[v]) + int64(i)*int64(of.Width*of.Elem.Bytes()),
		Bytes: to,
	}
}

// StateVars returns the variables that describe an agent, and the number of elements of each. An
// agent of quantum has the probabilities of its basis states.
func (a *Agents) StateVars() (vars []int, width int) {
	if a.cell.Cell.Name == "leaky" {
		return []int{kernels.AgentVarPotential, kernels.AgentVarTrace}, 1
	}
	if a.cell.Measures() {
		return []int{kernels.QuantumVarState}, 1 << a.cell.Qubits()
	}
	return []int{kernels.AgentVarRow}, int(a.cell.Value("hidden")) // without padding and inputs
}

// StateWidth returns the number of values of an agent in AgentStates.
func (a *Agents) StateWidth() int {
	vars, width := a.StateVars()
	return len(vars) * width
}

// AgentStates reads the states of agents. out.Agent is ids. The device gathers the states of many
// agents that are all on it; else consecutive ids are read together.
func (a *Agents) AgentStates(ctx context.Context, ids []uint32) (*batch.AgentStates, error) {
	vars, width := a.StateVars()
	out := &batch.AgentStates{
		Agent: ids,
		Vote:  make([]uint8, len(ids)),
		Width: len(vars) * width,
		State: make([]float32, len(ids)*len(vars)*width),
	}
	if a.cell.Measures() {
		return out, a.probabilities(ctx, out)
	}
	if len(ids) >= leastGathered && a.memory.Resident() {
		if done, err := gather(ctx, a, out); err != nil {
			return nil, err
		} else if done {
			return out, nil
		}
	}
	if err := a.stream.Sync(ctx); err != nil {
		return nil, gpubatch.Mark(err)
	}
	data := make([][]byte, len(vars)) // by variable, of all ids
	parts := make([]pager.Part, 0, 1+len(vars))
	for k, v := range vars {
		of := a.layout.Vars[v]
		data[k] = make([]byte, len(ids)*of.Width*of.Elem.Bytes())
	}
	a.eachRun(ids, func(first, n, page, at int) {
		parts = append(parts, a.part(page, kernels.AgentVarVote, at, out.Vote[first:][:n]))
		for k, v := range vars {
			bytes := len(data[k]) / len(ids)
			parts = append(parts, a.part(page, v, at, data[k][first*bytes:][:n*bytes]))
		}
	})
	if err := a.memory.ReadAll(ctx, parts); err != nil {
		return nil, err
	}
	for i, v := range out.Vote { // 0 has never stepped, and wraps to NoVote
		out.Vote[i] = v - 1
	}
	for k, v := range vars {
		of := a.layout.Vars[v]
		for i := range ids {
			for j := range width {
				to := &out.State[i*out.Width+k*width+j]
				if e := i*of.Width + j; of.Elem == kernels.BF16 {
					*to = device.FromBF16(device.Of[uint16](data[k])[e])
				} else {
					*to = device.Of[float32](data[k])[e]
				}
			}
		}
	}
	return out, nil
}

// eachRun calls f for runs of ids that follow one another in a page: the place of the first one in
// ids, how many they are, the page, and the place of the first one there.
func (a *Agents) eachRun(ids []uint32, f func(first, n, page, at int)) {
	size := a.layout.Agents * a.layout.Slots // agents of a page
	for first, n := 0, 0; first < len(ids); first += n {
		for n = 1; first+n < len(ids) && ids[first+n] == ids[first]+uint32(n) &&
			a.page(ids[first+n]) == a.page(ids[first]); n++ {
		}
		f(first, n, a.page(ids[first]), int(ids[first])%size)
	}
}

// probabilities reads the states of agents of a quantum cell, whose elements stand apart. An agent
// that has never stepped is in |0...0>.
func (a *Agents) probabilities(ctx context.Context, out *batch.AgentStates) error {
	if err := a.stream.Sync(ctx); err != nil {
		return gpubatch.Mark(err)
	}
	ids, elements := out.Agent, a.layout.Vars[kernels.QuantumVarState].Width
	data := make([]float32, elements*len(ids)) // by element
	var parts []pager.Part
	a.eachRun(ids, func(first, n, page, at int) {
		parts = append(parts, a.part(page, kernels.AgentVarVote, at, out.Vote[first:][:n]))
		for e := range elements {
			parts = append(parts, pager.Part{
				Page: uint64(page),
				Off: int64(a.layout.Offsets[kernels.QuantumVarState]) +
					4*int64(e*a.layout.Agents*a.layout.Slots+at),
				Bytes: device.Bytes(data[e*len(ids)+first:][:n]),
			})
		}
	})
	if err := a.memory.ReadAll(ctx, parts); err != nil {
		return err
	}
	for i, v := range out.Vote {
		out.Vote[i] = v - 1 // 0 has never stepped, and wraps to NoVote
		for r := range out.Width {
			re, im := data[2*r*len(ids)+i], data[(2*r+1)*len(ids)+i]
			out.State[i*out.Width+r] = float32(re*re) + float32(im*im)
		}
		if v == 0 {
			out.State[i*out.Width] = 1
		}
	}
	return nil
}

// GroupStates reads the states of groups. out.Group is ids.
func (a *Agents) GroupStates(ctx context.Context, ids []uint32) (*batch.GroupStates, error) {
	C := a.cell.Candidates
	out := &batch.GroupStates{
		Group:      ids,
		Decision:   make([]uint8, len(ids)),
		Round:      make([]uint64, len(ids)),
		Counts:     make([]uint32, len(ids)*C),
		Candidates: C,
	}
	// The fraction of the kernels. The smallest fraction above zero demands as much of a group as
	// zero does: one vote.
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
		return nil, gpubatch.Mark(err)
	}
	parts := make([]pager.Part, 0, 2*len(ids))
	for i, id := range ids {
		page, slot := int(id)/a.layout.Slots, int(id)%a.layout.Slots
		parts = append(parts, a.part(page, kernels.AgentVarCounts, slot, device.Bytes(out.Counts[i*C:][:C])),
			a.part(page, kernels.AgentVarRound, slot, device.Bytes(out.Round[i:i+1])))
	}
	if err := a.memory.ReadAll(ctx, parts); err != nil {
		return nil, err
	}
	for i := range ids {
		counts := out.Counts[i*C:][:C]
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
