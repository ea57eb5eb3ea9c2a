package swarmlog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/registry"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// lostFor bounds how long a GPU agent is listed as lost whose shards nobody takes.
const lostFor = 10 * time.Minute

// lostMark is the body of the message that removes the record of a session which was not renewed. A
// session that is closed leaves none.
type lostMark struct {
	Version int       `json:"v"`
	Holder  string    `json:"holder"`
	Renewed time.Time `json:"renewed"` // for the last time, by the server's clock
}

// markLost is the body of the message that removes the record of session o.
func markLost(o sessionState) ([]byte, error) {
	data, err := json.Marshal(lostMark{Version: jobs.Version, Holder: o.holder, Renewed: o.renewed})
	if err != nil {
		return nil, fmt.Errorf("remove the session of %s: %w", o.holder, err)
	}
	return data, nil
}

// Census is who is in the cluster, and who holds which shard.
type Census struct {
	// Agents are those that have announced themselves, and those that are lost, by name. A lost
	// agent has the state AgentLost and a Lost.
	Agents []jobs.Agent
	// Holders are the live holders of leases, by lease key.
	Holders map[string]string
}

// LostHolder returns the lost agent that held a lease last; nil: there is none.
func (c *Census) LostHolder(key string) *jobs.Agent {
	for i, a := range c.Agents {
		if a.Lost != nil && slices.Contains(a.Lost.Shards, key) {
			return &c.Agents[i]
		}
	}
	return nil
}

// Recovery returns how far the replay of a shard is; nil: it is not replayed, or its agent has not
// said so yet.
func (c *Census) Recovery(key string) *jobs.Recovery {
	for _, a := range c.Agents {
		for i, r := range a.Recovering {
			if r.Shard == key && a.Lost == nil {
				return &a.Recovering[i]
			}
		}
	}
	return nil
}

// Census lists agents and leases. It is for people and for hints; nothing that must be right may
// rest on it.
func (sw *Swarms) Census(ctx context.Context) (*Census, error) {
	agents, err := sw.agents.Agents(ctx)
	if err != nil {
		return nil, err
	}
	all, err := sw.conn.LastPerKey(ctx, "list leases", wire.LeaseBucket)
	if err != nil {
		return nil, err
	}
	return census(agents, all, time.Now()), nil
}

// absent is a session that has ended without a word.
type absent struct {
	holder string
	since  time.Time
	shards []string
	buried bool // its record is gone
}

func census(agents []jobs.Agent, messages map[string]*natsconn.Message, now time.Time) *Census {
	t, live, lost := newLeaseTable(), map[string]bool{}, map[string]*absent{}
	known := map[string]bool{}
	for _, a := range agents {
		known[a.Name] = true
	}
	for key, m := range messages {
		gone := natsconn.IsTombstone(m.Header)
		t.change(leaseChange{key: key, seq: m.Seq, gone: gone, value: m.Data, at: m.Time}, now)
		var mark lostMark
		if isSession(key) && gone && json.Unmarshal(m.Data, &mark) == nil && mark.Holder != "" {
			lost[key] = &absent{holder: mark.Holder, since: mark.Renewed, buried: true}
		}
	}
	for id, s := range t.sessions {
		if known[s.holder] || now.Sub(s.renewed) <= s.ttl {
			live[s.holder] = true
			continue
		}
		lost[id] = &absent{holder: s.holder, since: s.renewed} // nobody is there who ends it
	}
	out := &Census{Holders: map[string]string{}}
	for key, l := range t.leases {
		_, alive := t.sessions[l.session]
		switch {
		case l.holder == "":
		case lost[l.session] != nil:
			lost[l.session].shards = append(lost[l.session].shards, key)
		case alive || l.session == "":
			out.Holders[key] = l.holder
		}
	}
	gone := map[string]*absent{} // by name, of several the latest
	for _, o := range lost {
		if was := gone[o.holder]; live[o.holder] || now.Sub(o.since) > lostFor || was != nil &&
			was.since.After(o.since) {
			continue
		}
		slices.Sort(o.shards)
		gone[o.holder] = o
	}
	for _, a := range agents {
		// the registry forgets it later
		if o := gone[a.Name]; o != nil && o.buried && a.Seen.Before(o.since.Add(registry.AnnounceEvery)) {
			a.State, a.Lost, a.Running, a.Recovering = jobs.AgentLost, o.lost(), len(o.shards), nil
			delete(gone, a.Name)
		} else if o != nil {
			delete(gone, a.Name)
		}
		out.Agents = append(out.Agents, a)
	}
	for name, o := range gone {
		if len(o.shards) == 0 && o.buried { // all are held again
			continue
		}
		out.Agents = append(out.Agents, jobs.Agent{
			Version: jobs.Version, Name: name, Pool: jobs.PoolGPU, State: jobs.AgentLost, Running: len(o.shards),
			Seen: o.since, Lost: o.lost(),
		})
	}
	slices.SortFunc(out.Agents, func(a, b jobs.Agent) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), a.Seen.Compare(b.Seen))
	})
	return out
}

func (o *absent) lost() *jobs.Lost { return &jobs.Lost{Since: o.since, Shards: o.shards} }
