package gpuagents

import (
	"cmp"
	"slices"

	"github.com/exoswarm/exoswarm/gpuagents/shard"
	"github.com/exoswarm/exoswarm/jobs"
)

// maxAnnounced bounds the shards in each list of the announcement of an agent, which is a message.
const maxAnnounced = 100

// Teams returns the shards whose ticks run on several devices, by key, at most maxAnnounced of
// them.
func (a *Agent) Teams() []jobs.Team {
	return served(a, (*shard.OpenShard).Team, func(a, b jobs.Team) int { return cmp.Compare(a.Shard, b.Shard) })
}

// Recoveries returns the shards that the agent replays now, by key, at most maxAnnounced of them.
func (a *Agent) Recoveries() []jobs.Recovery {
	return served(a, (*shard.OpenShard).Recovery, func(a, b jobs.Recovery) int {
		return cmp.Compare(a.Shard, b.Shard)
	})
}

func served[T any](a *Agent, of func(open *shard.OpenShard, key string) (T, bool), order func(a, b T) int) (all []T) {
	a.mu.Lock()
	for _, p := range a.assignments {
		if p.state != stateServed {
			continue
		}
		if t, is := of(p.open, p.key()); is {
			all = append(all, t)
		}
	}
	a.mu.Unlock()
	slices.SortFunc(all, order)
	return all[:min(len(all), maxAnnounced)]
}
