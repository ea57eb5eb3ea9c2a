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
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// lostFor bounds how long a GPU agent is listed as lost while no agent takes its shards.
const lostFor = 10 * time.Minute

// lostMark is the body of the message that removes the record of a session that was not renewed.
// Close leaves no mark.
type lostMark struct {
	Version int       `json:"v"`
	Holder  string    `json:"holder"`
	Renewed time.Time `json:"renewed"` // the last renewal, by the server's clock
}

// markLost returns the body of the message that removes the record of session o.
func markLost(o sessionState) ([]byte, error) {
	data, err := json.Marshal(lostMark{Version: jobs.Version, Holder: o.holder, Renewed: o.renewed})
	if err != nil {
		return nil, fmt.Errorf("remove the session of %s: %w", o.holder, err)
	}
	return data, nil
}

// Census lists the agents of the cluster and the holders of shards at one moment. It does not
// change.
type Census struct {
	// Agents are the announced and the lost agents, in the order of their names. A lost agent has
	// State jobs.AgentLost and a Lost.
	Agents []jobs.Agent
	// Holders are the live holders of leases, by lease key.
	Holders map[string]string
}

// LostHolder returns the lost agent that last held a lease, or nil.
func (c *Census) LostHolder(key string) *jobs.Agent {
	for i, a := range c.Agents {
		if a.Lost != nil && slices.Contains(a.Lost.Shards, key) {
			return &c.Agents[i]
		}
	}
	return nil
}

// Recovery returns the progress of the replay of a shard. It is nil if the shard is not replayed,
// or its agent has not announced that yet.
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

// Team returns the devices that make the ticks of a shard, or nil if none or one is known.
func (c *Census) Team(key string) []string {
	for _, a := range c.Agents {
		for _, t := range a.Teams {
			if t.Shard == key && a.Lost == nil {
				return t.Devices
			}
		}
	}
	return nil
}

// Census reads agents and leases. The two are read one after the other, so they need not match. It
// is for people and for hints, and no decision that must be right may depend on it.
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

// absent is a session that was not closed and is not renewed.
type absent struct {
	holder string
	since  time.Time
	shards []string
	buried bool // its record is gone
}

// census is Census of the agents and the last message of each key of the bucket.
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
		lost[id] = &absent{holder: s.holder, since: s.renewed} // no other session has removed it yet
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
	gone := map[string]*absent{} // by name; the latest of several
	for _, o := range lost {
		if was := gone[o.holder]; live[o.holder] || now.Sub(o.since) > lostFor || was != nil &&
			was.since.After(o.since) {
			continue
		}
		slices.Sort(o.shards)
		gone[o.holder] = o
	}
	for _, a := range agents {
		// The registry still lists the agent for a while.
		if o := gone[a.Name]; o != nil && o.buried && a.Seen.Before(o.since.Add(natsconn.AnnounceEvery)) {
			a.State, a.Lost, a.Running = jobs.AgentLost, o.lost(), len(o.shards)
			a.Recovering, a.Teams = nil, nil
			delete(gone, a.Name)
		} else if o != nil {
			delete(gone, a.Name)
		}
		out.Agents = append(out.Agents, a)
	}
	for name, o := range gone {
		if len(o.shards) == 0 && o.buried { // other agents hold all its shards
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
