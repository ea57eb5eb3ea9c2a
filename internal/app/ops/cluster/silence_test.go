package cluster

import (
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestSilence: a GPU agent that has answered and has no connection for three seconds is lost, with
// its shards. One that is busy, never answered or comes back is not.
func TestSilence(t *testing.T) {
	now, k, asked := time.Unix(1000, 0), silence{}, 0
	look := func(after time.Duration, listens bool, answers ...string) *State {
		now = now.Add(after)
		s := &State{Swarms: []Swarm{{Key: "s", Shards: []Shard{{Shard: 1, Holder: "g"}, {Shard: 2, Holder: "h"}}}}}
		for _, name := range []string{"g", "c", "new"} {
			pool := jobs.PoolGPU
			if name == "c" {
				pool = jobs.PoolCPU
			}
			s.Agents = append(s.Agents, Agent{Agent: jobs.Agent{Name: name, Pool: pool, State: "serving"}})
		}
		replies := map[string]*jobs.Telemetry{}
		for _, name := range answers {
			replies[name] = &jobs.Telemetry{}
		}
		k.follow(s, replies, now, func(agent string) bool {
			asked++
			if agent != "g" {
				t.Errorf("%s is asked for", agent)
			}
			return listens
		})
		return s
	}
	alive := func(what string, s *State) {
		t.Helper()
		for _, a := range s.Agents {
			if a.Lost != nil {
				t.Errorf("%s: %s is lost", what, a.Name)
			}
		}
	}
	alive("no answer yet", look(0, false))
	alive("all answer", look(time.Second, false, "g", "c"))
	alive("busy", look(time.Minute, true, "c"))
	if asked != 1 {
		t.Errorf("%d questions, want 1", asked)
	}
	alive("just gone", look(time.Second, false))
	alive("gone for two seconds", look(2*time.Second, false))
	alive("back", look(time.Second, true))
	alive("gone again", look(time.Second, false))
	s := look(lostAfter, false)
	if a := s.Agents[0]; a.Lost == nil || a.State != jobs.AgentLost || !a.Lost.Since.Equal(now.Add(-lostAfter)) ||
		len(a.Lost.Shards) != 1 || a.Lost.Shards[0] != "s.1" {
		t.Errorf("the agent that is gone is %+v", a.Lost)
	}
	alive("a new process", look(time.Second, false, "g"))
}
