package gpuagents

import (
	"cmp"
	"slices"

	"github.com/exoswarm/exoswarm/jobs"
)

// mostRecoveries bounds how many replays an agent tells of: its announcement is a message.
const mostRecoveries = 100

// Recoveries are the shards that the agent replays now, by key, at most mostRecoveries of them.
func (a *Agent) Recoveries() (all []jobs.Recovery) {
	a.mu.Lock()
	for _, p := range a.posts {
		if p.state != postServed {
			continue
		}
		if r, is := p.seat.Recovery(p.key()); is {
			all = append(all, r)
		}
	}
	a.mu.Unlock()
	slices.SortFunc(all, func(a, b jobs.Recovery) int { return cmp.Compare(a.Shard, b.Shard) })
	return all[:min(len(all), mostRecoveries)]
}
