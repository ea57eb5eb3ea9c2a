package gpuagents

import (
	"cmp"
	"slices"

	"github.com/exoswarm/exoswarm/jobs"
)

// Teams returns the shards whose ticks several devices make, by key, at most maxRecoveries of them.
func (a *Agent) Teams() (all []jobs.Team) {
	a.mu.Lock()
	for _, p := range a.assignments {
		if p.state != stateServed {
			continue
		}
		if t, is := p.open.Team(p.key()); is {
			all = append(all, t)
		}
	}
	a.mu.Unlock()
	slices.SortFunc(all, func(a, b jobs.Team) int { return cmp.Compare(a.Shard, b.Shard) })
	return all[:min(len(all), maxRecoveries)]
}

// maxRecoveries bounds the replays in the announcement of an agent, which is a message.
const maxRecoveries = 100

// Recoveries returns the shards that the agent replays now, by key, at most maxRecoveries of them.
func (a *Agent) Recoveries() (all []jobs.Recovery) {
	a.mu.Lock()
	for _, p := range a.assignments {
		if p.state != stateServed {
			continue
		}
		if r, is := p.open.Recovery(p.key()); is {
			all = append(all, r)
		}
	}
	a.mu.Unlock()
	slices.SortFunc(all, func(a, b jobs.Recovery) int { return cmp.Compare(a.Shard, b.Shard) })
	return all[:min(len(all), maxRecoveries)]
}
