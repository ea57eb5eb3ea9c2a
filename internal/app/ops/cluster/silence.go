package cluster

import (
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// lostAfter is how long a GPU agent has no connection before it is shown as lost. A client of a
// cluster needs up to two seconds to reach another server.
const lostAfter = 3 * time.Second

// maxSilent is the largest number of agents whose connections are looked at in each poll while
// nobody watches.
const maxSilent = 16

// silence follows the GPU agents that have answered and do not any more. The announcement of a
// killed agent lasts ten seconds, and so may its leases; the server knows the end of its connection
// at once.
type silence struct {
	answered map[string]bool
	gone     map[string]time.Time // when the connection was first seen to be gone
}

// follow marks agents of a state without a connection as lost. listens reports whether an agent has
// one. It is asked about agents that did not answer the last question, so a cluster without faults
// costs nothing.
func (k *silence) follow(s *State, replies map[string]*jobs.Telemetry, now time.Time, listens func(string) bool) {
	answered, gone := map[string]bool{}, map[string]time.Time{}
	for i := range s.Agents {
		a := &s.Agents[i]
		if a.Pool != jobs.PoolGPU || a.Lost != nil {
			continue
		}
		answered[a.Name] = k.answered[a.Name] || replies[a.Name] != nil
		if !answered[a.Name] || replies[a.Name] != nil || listens(a.Name) {
			continue
		}
		since, ok := k.gone[a.Name]
		if !ok {
			since = now
		}
		gone[a.Name] = since
		if now.Sub(since) >= lostAfter {
			a.State, a.Lost = jobs.AgentLost, &jobs.Lost{Since: since.UTC(), Shards: s.held(a.Name)}
		}
	}
	k.answered, k.gone = answered, gone
}

// held returns the lease keys of the shards of an agent.
func (s *State) held(agent string) (keys []string) {
	for _, sw := range s.Swarms {
		for _, sh := range sw.Shards {
			if sh.Holder == agent {
				keys = append(keys, swarms.LeaseKey(sw.Key, sh.Shard))
			}
		}
	}
	return keys
}
