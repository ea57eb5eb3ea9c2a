package swarm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// swarmQuery prints the states of agents or groups in the order of the ids on the command line.
// The fields depend on how the swarm is addressed: votes and states, or the variables of the
// cell.
//
// NAME may be the name of a run. The answer has the state at the moment at which the GPU agent
// reads the query, between two batches. A query is an entry of the log that changes nothing. It
// needs an agent that serves the shards of the ids.
// checkQuery checks that one thing is asked for, before the command connects.
func checkQuery(cmd *cobra.Command, _ []string) error {
	given := 0
	for _, name := range []string{"agents", "groups", "key", "knowledge", "outcome"} {
		if cmd.Flags().Changed(name) {
			given++
		}
	}
	if given != 1 {
		return command.Usage("use one of --agents, --groups, --key, --knowledge and --outcome, as in --agents 1,5-9")
	}
	for _, name := range []string{"agents", "groups", "knowledge"} {
		if text, _ := cmd.Flags().GetString(name); text != "" {
			if _, err := parseIDs(text); err != nil {
				return command.Usage("--%s: %v", name, err)
			}
		}
	}
	return nil
}

func swarmQuery(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error {
	agents, _ := cmd.Flags().GetString("agents")
	groups, _ := cmd.Flags().GetString("groups")
	keys, _ := cmd.Flags().GetStringArray("key")
	outcome, _ := cmd.Flags().GetBool("outcome")
	knowledge, _ := cmd.Flags().GetString("knowledge")
	switch {
	case outcome:
		return printOutcome(cmd, s)
	case knowledge != "":
		ids, err := parseIDs(knowledge)
		if err != nil {
			return command.Usage("swarm query: --knowledge: %v", err)
		}
		return printKnowledge(cmd, s, ids)
	case len(keys) > 0:
		return queryKeys(cmd, c, s, keys)
	}
	// flag and its value, for errors.
	flag, text := "--agents", agents
	if groups != "" {
		flag, text = "--groups", groups
	}
	ids, err := parseIDs(text)
	if err != nil {
		return command.Usage("swarm query: %s: %v", flag, err)
	}
	// Votes and decisions exist while agents are addressed; groups that are addressed vote with
	// each observation.
	show := shown{[]string{"AGENT", "VOTE", "STATE"}, showAgents}
	switch byAgent := s.Spec().Topology().ByAgent; {
	case groups != "" && byAgent:
		show = shown{[]string{"GROUP", "DECISION", "ROUND", "VOTES"}, showGroups}
	case groups != "":
		show = shown{[]string{"GROUP", "ROUND", "STATE"}, showGroupVariables}
	case !byAgent:
		show = shown{[]string{"AGENT", "GROUP", "EMBEDDING", "STATE"}, showAgentVariables}
	}
	return printPages(cmd, s, ids, show)
}

// shown are things of a swarm as a table, and the function that asks for some of them.
type shown struct {
	columns []string
	ask     func(ctx context.Context, s *swarmclient.Swarm, ids []uint32) ([]cli.Row, error)
}

// tooMany is in the refusal of a query for more ids than an answer holds, whose number the agent
// knows.
const tooMany = "ask for at most"

// printPages prints agents or groups, as many at a time as an answer holds. Entries of other
// clients may come between two pages.
func printPages(cmd *cobra.Command, s *swarmclient.Swarm, ids []uint32, show shown) error {
	p, err := cli.Table[cli.Row]{Columns: show.columns}.Begin(cmd)
	if err != nil {
		return err
	}
	for page := len(ids); len(ids) > 0 && err == nil; {
		page = min(page, len(ids))
		rows, qerr := show.ask(cmd.Context(), s, ids[:page])
		if qerr != nil && page > 1 && strings.Contains(qerr.Error(), tooMany) {
			page = (page + 1) / 2
			continue
		}
		for err = qerr; len(rows) > 0 && err == nil; rows = rows[1:] {
			err = rows[0].Print(p)
		}
		ids = ids[page:]
	}
	return errors.Join(err, p.End())
}

// queryKeys prints the groups of the entities with some keys, or of the series of a run without a
// key with these names.
//
// Fields: name, key (the values by key column), group, shard and state by variable.
func queryKeys(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm, keys []string) error {
	if s.Spec().Topology().ByAgent {
		return command.Usage("swarm query: --key: swarm %s addresses agents: use --agents or --groups", s.ID())
	}
	found, err := entitiesOf(cmd.Context(), c, s, keys)
	if err != nil {
		return err
	}
	all, err := entities.StatesOf(cmd.Context(), s, found)
	if err != nil {
		return err
	}
	return cli.Table[entities.State]{
		Columns: []string{"KEY", "GROUP", "ROUND", "STATE"},
		Row:     func(s entities.State) []any { return []any{s.Name, s.Group, s.State["round"], s.Text} },
	}.Print(cmd, all...)
}

// entitiesOf returns the entities of a swarm with some keys. The series of a run without a key are
// found by their names.
func entitiesOf(ctx context.Context, c *natsq.Conn, s *swarmclient.Swarm, keys []string) ([]entities.Entity, error) {
	found, err := entities.Find(ctx, c.Swarms, s.Record(), keys...)
	if !errors.Is(err, entities.ErrNoKey) {
		return found, err
	}
	guide, err := travel.New(travel.Options{Conn: c})
	if err != nil {
		return nil, err
	}
	defer guide.Close()
	for _, key := range keys {
		group, err := guide.GroupOf(ctx, s.ID(), key)
		if err != nil {
			return nil, err
		}
		found = append(found, entities.Entity{Name: key, Group: group, Shard: s.Record().ShardOf(group)})
	}
	return found, nil
}

// showAgents prints agents of a swarm whose agents are addressed, each with its vote and state.
//
// Fields: agent, vote (a candidate or none) and state, the numbers of the cell in the order of
// docs/cells.md.
func showAgents(ctx context.Context, s *swarmclient.Swarm, ids []uint32) (rows []cli.Row, err error) {
	all, err := s.AgentStates(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i, id := range all.Agent {
		vote, state := s.Candidate(int(all.Vote[i])), all.State[i*all.Width:][:all.Width]
		rows = append(rows, cli.NewRow(map[string]any{"agent": id, "vote": vote, "state": state}, id, vote,
			listText(state)))
	}
	return rows, nil
}

// showGroups prints groups of a swarm whose agents are addressed, each with its decision, its
// round and the votes of its agents now.
//
// Fields: group, decision, round (the number of decisions so far) and votes by candidate; agents
// that have never stepped are in none of them.
func showGroups(ctx context.Context, s *swarmclient.Swarm, ids []uint32) (rows []cli.Row, err error) {
	all, err := s.GroupStates(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i, id := range all.Group {
		// s.Candidate returns none for a group that has never decided.
		decision, votes, text := s.Candidate(int(all.Decision[i])), map[string]uint32{}, []string(nil)
		for c, n := range all.Counts[i*all.Candidates:][:all.Candidates] {
			votes[s.Candidate(c)] = n
			text = append(text, fmt.Sprintf("%s %d", s.Candidate(c), n))
		}
		item := map[string]any{"group": id, "decision": decision, "round": all.Round[i], "votes": votes}
		rows = append(rows, cli.NewRow(item, id, decision, all.Round[i], strings.Join(text, ", ")))
	}
	return rows, nil
}

// showGroupVariables prints groups of a swarm whose groups are addressed, each with the state
// variables of its cell.
//
// Fields: group and state by variable.
func showGroupVariables(ctx context.Context, s *swarmclient.Swarm, ids []uint32) (rows []cli.Row, err error) {
	all, err := s.GroupVariables(ctx, ids)
	if err != nil {
		return nil, err
	}
	for i, id := range all.Group {
		state, text := entities.Row(all.Vars, i)
		rows = append(rows, cli.NewRow(map[string]any{"group": id, "state": state}, id, state["round"], text))
	}
	return rows, nil
}

// showAgentVariables prints agents of a swarm whose groups are addressed, each with its group, its
// embedding and the state variables of its cell.
//
// Fields: agent, group, embedding and state by variable.
func showAgentVariables(ctx context.Context, s *swarmclient.Swarm, ids []uint32) (rows []cli.Row, err error) {
	all, err := s.AgentVariables(ctx, ids)
	if err != nil {
		return nil, err
	}
	// Ids are dense: agent I of group G has the id G times size plus I.
	size := uint32(s.Spec().AgentsPerGroup)
	for i, id := range all.Agent {
		state, text := entities.Row(all.Vars, i)
		embedding := all.Embedding[i*all.Width:][:all.Width]
		item := map[string]any{"agent": id, "group": id / size, "embedding": embedding, "state": state}
		rows = append(rows, cli.NewRow(item, id, id/size, listText(embedding), text))
	}
	return rows, nil
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
