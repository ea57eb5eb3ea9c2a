package agents

import (
	"context"
	"fmt"
	"math"
	"math/bits"

	"github.com/exoswarm/exoswarm/consensus"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
)

// Vote returns the decision of all agents by their votes of their last steps; agents that have
// never stepped abstain. It changes nothing, and reads one tally that steps keep, whatever the
// number of agents. round is a number of the caller. If seeded, the leader is the agent with the
// highest Priority; else all agents have priority 0, and agent 0 leads. Elect is for a leader that
// votes for the winner. An invalid rule is a consensus.ErrRule.
func (a *Agents) Vote(ctx context.Context, rule consensus.Rule, round uint64, seeded bool) (consensus.Decision, error) {
	if a.inconsistent != nil {
		return consensus.Decision{}, a.inconsistent
	}
	data, err := a.read(ctx, a.scratch, a.scratch.Size())
	if err != nil {
		return consensus.Decision{}, err
	}
	t, err := a.tally(device.Of[uint64](data)[kernels.AgentTally:][:a.cell.Candidates])
	if err != nil {
		return consensus.Decision{}, err
	}
	t.Lead(consensus.Leader{Elected: true})
	if seeded {
		leader := uint32(Leading(a.seed, round, a.n))
		t.Lead(consensus.Leader{Agent: uint64(leader), Priority: Priority(a.seed, round, a.n, leader), Elected: true})
	}
	d, err := consensus.Decide(rule, t)
	d.Round = round
	return d, err
}

// tally returns the tally of all agents from the votes for each candidate. Agents without a vote
// abstain.
func (a *Agents) tally(votes []uint64) (consensus.Tally, error) {
	t, err := consensus.NewTally(a.cell.Candidates)
	if err != nil {
		return t, err
	}
	cast := uint64(0)
	for c, n := range votes {
		t.Counts[c] = n
		cast += n
	}
	t.Total, t.Abstentions = uint64(a.n), uint64(a.n)-cast
	if err := t.Check(); err != nil || cast > t.Total {
		return t, fmt.Errorf("%w: %d votes of %d agents: %w", gpubatch.ErrDevice, cast, a.n, consensus.ErrSum)
	}
	return t, nil
}

// Priority returns the priority of an agent in a round of a swarm with this seed and this number of
// agents, below 2^32. A hash of seed and round selects the agent with the highest priority, 2^32-1;
// all agents have the same chance. The agent with the next id has one less, and so on around the
// ids. No two priorities are equal, and the leader is found without a scan of the agents. Agents
// that have never stepped may lead too.
func Priority(seed, round uint64, agents int64, agent uint32) uint32 {
	return math.MaxUint32 - uint32((int64(agent)-Leading(seed, round, agents)+agents)%agents)
}

// Leading returns the agent with the highest priority.
func Leading(seed, round uint64, agents int64) int64 {
	mix := func(z uint64) uint64 { // the finaliser of splitmix64
		z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
		z = (z ^ z>>27) * 0x94D049BB133111EB
		return z ^ z>>31
	}
	const step = 0x9E3779B97F4A7C15
	first, _ := bits.Mul64(mix(mix(seed+step)^round+step), uint64(agents))
	return int64(first)
}
