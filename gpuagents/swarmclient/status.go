package swarmclient

import (
	"context"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// States of ShardState. A shard that is replayed has a description instead.
const (
	StateServed  = "served"
	StateWaiting = "waiting for a GPU agent"
)

// ShardState is the service of one shard: which GPU agent holds its lease, and whether that answers
// yet.
type ShardState struct {
	Shard int `json:"shard"` // from 0
	// Holder is the name of the GPU agent that holds the lease; empty: none does.
	Holder string `json:"holder,omitempty"`
	// State is StateServed, StateWaiting with a reason if one is known, or the progress of
	// a replay.
	State string `json:"state"`
	// Recovering is the progress of the replay of a shard that was taken over; nil: none runs.
	Recovering *jobs.Recovery `json:"recovering,omitempty"`
	// Devices are the devices of the agent that make the ticks of the shard, if they are several.
	Devices []string `json:"devices,omitempty"`
	// LostHolder is the last GPU agent that held the lease, when it ended without giving it back,
	// and LostSince when that was.
	LostHolder string    `json:"lost_holder,omitempty"`
	LostSince  time.Time `json:"lost_since,omitzero"`
}

// Census describes the agents of a cluster at one moment. The Census of jobs/natsq/swarmlog is one.
type Census interface {
	// LostHolder returns the lost agent that held a lease last; nil when there is none.
	LostHolder(key string) *jobs.Agent
	// Recovery returns the progress of the replay of a shard; nil when none is known.
	Recovery(key string) *jobs.Recovery
	// Team returns the devices that make the ticks of a shard; nil when none or one is known.
	Team(key string) []string
}

// ShardStates returns the states of all shards of a swarm, in their order. holders has the names of
// the agents that hold leases, by lease key.
func ShardStates(s swarms.Swarm, holders map[string]string, c Census) (all []ShardState) {
	for k := range s.ShardCount() {
		key := swarms.LeaseKey(s.Key(), k)
		st := ShardState{Shard: k, Holder: holders[key], State: StateServed}
		switch st.Holder {
		case "":
			st.State = StateWaiting
			if a := c.LostHolder(key); a != nil {
				st.LostHolder, st.LostSince = a.Name, a.Lost.Since
				st.State = fmt.Sprintf("%s: %s was lost at %s", StateWaiting, a.Name,
					a.Lost.Since.Local().Format(time.TimeOnly))
			}
		default:
			if st.Recovering = c.Recovery(key); st.Recovering != nil {
				st.State = st.Recovering.String()
			}
			st.Devices = c.Team(key)
		}
		all = append(all, st)
	}
	return all
}

// SummaryState returns the state of a swarm as a whole: the state of the first shard that is not
// served, with the number of further such shards, or StateServed.
func SummaryState(all []ShardState) string {
	var first string
	others := 0
	for _, st := range all {
		switch {
		case st.State == StateServed:
		case first == "":
			first = st.State
			if len(all) > 1 {
				first = fmt.Sprintf("shard %d: %s", st.Shard, st.State)
			}
		default:
			others++
		}
	}
	switch {
	case first == "":
		return StateServed
	case others > 0:
		return fmt.Sprintf("%s; %d more shards are not served", first, others)
	}
	return first
}

// Position is the extent of a shard.
type Position struct {
	First int64 // id of its first agent
	End   int64 // id after its last agent
	// Entries is the number of the last entry of its log, and Answered the number of the last
	// answered entry. They are equal when nothing waits.
	Entries, Answered uint64
}

// Positions returns the extents of all shards, in their order. It reads the ends of the logs, and
// asks no agent.
func (s *Swarm) Positions(ctx context.Context) ([]Position, error) {
	all := make([]Position, s.record.ShardCount())
	for n := range all {
		k := shard{s, n}
		in, err := k.log(swarms.In).Last(ctx)
		if err != nil {
			return nil, s.explainEnd(err)
		}
		out, err := k.log(swarms.Out).Last(ctx)
		if err != nil {
			return nil, s.explainEnd(err)
		}
		first, end := k.agents()
		all[n] = Position{First: first, End: end, Entries: in.Seq, Answered: min(out.Ref, in.Seq)}
	}
	return all, nil
}
