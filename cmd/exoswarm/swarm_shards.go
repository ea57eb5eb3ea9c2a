package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/swarmlog"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// shardState is where a shard of a swarm stands, as people and -o json see it.
type shardState struct {
	Shard      int            `json:"shard"`
	Holder     string         `json:"holder,omitempty"` // the GPU agent that serves it
	State      string         `json:"state"`
	Recovering *jobs.Recovery `json:"recovering,omitempty"` // nil: it is not replayed
	LostHolder string         `json:"lost_holder,omitempty"`
	LostSince  time.Time      `json:"lost_since,omitzero"`
}

// Words of shardState.State beside a replay.
const (
	stateServed  = "served"
	stateWaiting = "waiting for a GPU agent"
)

// shardStates are those of all shards of a swarm, in their order.
func shardStates(c *swarmlog.Census, s swarms.Swarm) (all []shardState) {
	for k := range s.ShardCount() {
		key := swarms.LeaseKey(s.Key(), k)
		st := shardState{Shard: k, Holder: c.Holders[key], State: stateServed}
		switch st.Holder {
		case "":
			st.State = stateWaiting
			if a := c.LostHolder(key); a != nil {
				st.LostHolder, st.LostSince = a.Name, a.Lost.Since
				st.State = fmt.Sprintf("%s: %s was lost at %s", stateWaiting, a.Name,
					a.Lost.Since.Local().Format(time.TimeOnly))
			}
		default:
			if st.Recovering = c.Recovery(key); st.Recovering != nil {
				st.State = st.Recovering.String()
			}
		}
		all = append(all, st)
	}
	return all
}

// swarmState is where a swarm stands as a whole: the state of the first shard that is not served.
func swarmState(all []shardState) string {
	var first string
	others := 0
	for _, st := range all {
		switch {
		case st.State == stateServed:
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
		return stateServed
	case others > 0:
		return fmt.Sprintf("%s; %d more shards are not served", first, others)
	}
	return first
}

func swarmGetCommand() *cobra.Command {
	return &cobra.Command{
		Use: "get NAME", Short: "Show who serves each shard of a swarm, and how far that is", Args: cobra.ExactArgs(1),
		RunE: simulating(swarmGet),
		Long: `Show each shard of a swarm: the GPU agent that serves it, its state, and the last
entries of its logs. ENTRIES are those of its log, ANSWERED is the last one that has an answer. A
shard that another agent has taken over is replayed first: it answers nothing before the replay is
over.`,
	}
}

func swarmGet(cmd *cobra.Command, s *simulation) error {
	p, err := newPrinter(cmd.OutOrStdout(), cmd.Flags(), "SHARD", "AGENTS", "HOLDER", "STATE", "ENTRIES", "ANSWERED")
	if err != nil {
		return err
	}
	census, err := s.conn.Swarms.Census(cmd.Context())
	if err != nil {
		return err
	}
	type item struct {
		shardState
		First    int64  `json:"first_agent"`
		End      int64  `json:"end_agent"` // behind the last one
		Entries  uint64 `json:"entries"`
		Answered uint64 `json:"answered"`
	}
	for _, st := range shardStates(census, s.record) {
		k := shard{s, st.Shard}
		in, err := k.log(swarms.In).Last(cmd.Context())
		if err != nil {
			return k.of.over(err)
		}
		out, err := k.log(swarms.Out).Last(cmd.Context())
		if err != nil {
			return k.of.over(err)
		}
		first, end := k.agents()
		one := item{st, first, end, in.Seq, min(out.Ref, in.Seq)}
		if err := p.item(one, st.Shard, fmt.Sprintf("%d to %d", first, end-1), st.Holder, st.State, one.Entries,
			one.Answered); err != nil {
			return err
		}
	}
	return p.end()
}

// agentState is the state of an agent for people: what was lost with it, what it replays, and why
// it runs on the host.
func agentState(a jobs.Agent) string {
	switch {
	case a.Lost != nil && len(a.Lost.Shards) == 0:
		return fmt.Sprintf("%s since %s, held no shards", a.State, a.Lost.Since.UTC().Format(time.RFC3339))
	case a.Lost != nil:
		const most = 3
		names, more := a.Lost.Shards, ""
		if len(names) > most {
			names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
		}
		return fmt.Sprintf("%s since %s, held %s%s", a.State, a.Lost.Since.UTC().Format(time.RFC3339),
			strings.Join(names, ", "), more)
	}
	state := a.State
	if n := len(a.Recovering); n > 0 {
		state = fmt.Sprintf("%s, %s: %v", state, a.Recovering[0].Shard, a.Recovering[0])
		if n > 1 {
			state += fmt.Sprintf(" and %d more", n-1)
		}
	}
	if a.Fallback != "" {
		state += " on the host: no GPU"
	}
	return state
}
