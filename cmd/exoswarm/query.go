package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// showVariables prints agents, or groups, of a swarm whose groups are addressed, each with the
// state variables of its cell. Agents have their group and embedding besides. Fields of an agent:
// agent, group, embedding and state by variable. Fields of a group: group and state. The caller
// ends p.
func showVariables(cmd *cobra.Command, s *swarmclient.Swarm, p *listing.Printer, ids []uint32, groups bool) error {
	if groups {
		all, err := s.GroupVariables(cmd.Context(), ids)
		if err != nil {
			return err
		}
		for i, id := range all.Group {
			state, text := rowOf(all.Vars, i)
			if err := p.Item(map[string]any{"group": id, "state": state}, id, state["round"], text); err != nil {
				return err
			}
		}
		return nil
	}
	all, err := s.AgentVariables(cmd.Context(), ids)
	if err != nil {
		return err
	}
	// Ids are dense: agent I of group G has the id G times size plus I.
	size := uint32(s.Spec().AgentsPerGroup)
	for i, id := range all.Agent {
		state, text := rowOf(all.Vars, i)
		embedding := all.Embedding[i*all.Width:][:all.Width]
		item := map[string]any{"agent": id, "group": id / size, "embedding": embedding, "state": state}
		if err := p.Item(item, id, id/size, strings.Trim(fmt.Sprint(embedding), "[]"), text); err != nil {
			return err
		}
	}
	return nil
}

// longVariable bounds the numbers of a variable that a table shows; of longer ones it shows the
// length.
const longVariable = 16

// rowOf returns row i of variables by name, those with one number as a number and others as a list,
// and the same as a text for a table. The text has the variables in the order of the layout. state
// shares the memory of vars.
func rowOf(vars []batch.Variable, i int) (state map[string]any, text string) {
	state = map[string]any{}
	var parts []string
	for _, v := range vars {
		var one, all any
		switch values := v.Values.(type) {
		case []float32:
			one, all = values[i*v.Width], values[i*v.Width:][:v.Width]
		case []uint32:
			one, all = values[i*v.Width], values[i*v.Width:][:v.Width]
		case []uint64:
			one, all = values[i*v.Width], values[i*v.Width:][:v.Width]
		case []int64:
			one, all = values[i*v.Width], values[i*v.Width:][:v.Width]
		case []uint8:
			numbers := make([]uint16, v.Width) // bytes would be written as base64
			for k, b := range values[i*v.Width:][:v.Width] {
				numbers[k] = uint16(b)
			}
			one, all = numbers[0], numbers
		}
		// A single number is not a list, in JSON as in the table.
		if v.Width == 1 {
			all = one
		}
		state[v.Name] = all
		shown := strings.Trim(fmt.Sprint(all), "[]")
		if v.Width > longVariable {
			shown = fmt.Sprintf("(%d)", v.Width)
		}
		parts = append(parts, v.Name+" "+shown)
	}
	return state, strings.Join(parts, ", ")
}

// swarmQuery prints the states of agents or groups in the order of the ids on the command line.
// The fields depend on how the swarm is addressed: votes and states, or the variables of the
// cell.
//
// NAME may be the name of a run. Its answers are those of the moment at which the GPU agent reads
// the query, between two batches. A query is an entry of the log that changes nothing. It needs an
// agent that serves the shards of the ids.
func swarmQuery(cmd *cobra.Command, s *swarmclient.Swarm) error {
	agents, _ := cmd.Flags().GetString("agents")
	groups, _ := cmd.Flags().GetString("groups")
	if (agents == "") == (groups == "") {
		return command.Usage("swarm query: use --agents or --groups, as in --agents 1,5-9")
	}
	// what is the flag and its value, for errors.
	what := [2]string{"--agents", agents}
	columns := []string{"AGENT", "VOTE", "STATE"}
	// Votes and decisions exist while agents are addressed; groups that are addressed vote with
	// each observation.
	if groups != "" {
		what = [2]string{"--groups", groups}
		columns = []string{"GROUP", "DECISION", "ROUND", "VOTES"}
	}
	switch {
	// The columns above are those of a swarm whose agents are addressed.
	case s.Spec().ByAgent():
	case groups != "":
		columns = []string{"GROUP", "ROUND", "STATE"}
	default:
		columns = []string{"AGENT", "GROUP", "EMBEDDING", "STATE"}
	}
	ids, err := parseIDs(what[1])
	if err != nil {
		return command.Usage("swarm query: %s: %v", what[0], err)
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), columns...)
	if err != nil {
		return err
	}
	switch {
	case !s.Spec().ByAgent():
		err = showVariables(cmd, s, p, ids, groups != "")
	case groups != "":
		err = showGroups(cmd, s, p, ids)
	default:
		err = showAgents(cmd, s, p, ids)
	}
	if err != nil {
		return err
	}
	return p.End()
}

// showAgents prints agents of a swarm whose agents are addressed, each with its vote and state.
//
// Fields: agent, vote (a candidate or none) and state, the numbers of the cell in the order of
// docs/cells.md.
func showAgents(cmd *cobra.Command, s *swarmclient.Swarm, p *listing.Printer, ids []uint32) error {
	all, err := s.AgentStates(cmd.Context(), ids)
	if err != nil {
		return err
	}
	for i, id := range all.Agent {
		vote, state := s.Candidate(int(all.Vote[i])), all.State[i*all.Width:][:all.Width]
		if err := p.Item(map[string]any{"agent": id, "vote": vote, "state": state}, id, vote,
			strings.Trim(fmt.Sprint(state), "[]")); err != nil {
			return err
		}
	}
	return nil
}

// showGroups prints groups of a swarm whose agents are addressed, each with its decision, its
// round and the votes of its agents now.
//
// Fields: group, decision, round (the number of decisions so far) and votes by candidate; agents
// that have never stepped are in none of them.
func showGroups(cmd *cobra.Command, s *swarmclient.Swarm, p *listing.Printer, ids []uint32) error {
	all, err := s.GroupStates(cmd.Context(), ids)
	if err != nil {
		return err
	}
	for i, id := range all.Group {
		// s.Candidate returns none for a group that has never decided.
		decision, votes, text := s.Candidate(int(all.Decision[i])), map[string]uint32{}, []string(nil)
		for c, n := range all.Counts[i*all.Candidates:][:all.Candidates] {
			votes[s.Candidate(c)] = n
			text = append(text, fmt.Sprintf("%s %d", s.Candidate(c), n))
		}
		item := map[string]any{"group": id, "decision": decision, "round": all.Round[i], "votes": votes}
		if err := p.Item(item, id, decision, all.Round[i], strings.Join(text, ", ")); err != nil {
			return err
		}
	}
	return nil
}

// parseIDs reads ids and ranges, as in 1,5-9, in their order. It returns up to swarms.MaxAddressed
// ids; an id may repeat. Whether the ids exist is checked by the swarm. White space around an id is
// allowed.
func parseIDs(text string) (ids []uint32, err error) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		first, err := strconv.ParseUint(strings.TrimSpace(from), 10, 32)
		last, lerr := strconv.ParseUint(strings.TrimSpace(to), 10, 32)
		switch {
		case err != nil || lerr != nil || last < first:
			return nil, fmt.Errorf("%q is neither an id nor a range: write 1,5-9", part)
		case last-first >= swarms.MaxAddressed || len(ids)+int(last-first) >= swarms.MaxAddressed:
			return nil, fmt.Errorf("more than %d ids: ask for fewer at a time", swarms.MaxAddressed)
		}
		// The range is checked against MaxAddressed before, so it cannot take all memory.
		for id := first; id <= last; id++ {
			ids = append(ids, uint32(id))
		}
	}
	return slices.Clip(ids), nil
}
