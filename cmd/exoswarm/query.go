package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/cmd/internal/swarmcommand"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// showVariables prints agents, or groups, of a swarm whose groups are addressed, each with the
// state variables of its cell. Agents have their group and embedding besides. Fields of an agent:
// agent, group, embedding and state by variable. Fields of a group: group and state. The caller
// ends p.
func showVariables(cmd *cobra.Command, s *swarmclient.Swarm, p *command.Printer, ids []uint32, groups bool) error {
	if groups {
		all, err := s.GroupVariables(cmd.Context(), ids)
		if err != nil {
			return err
		}
		for i, id := range all.Group {
			state, text := entities.Row(all.Vars, i)
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
		state, text := entities.Row(all.Vars, i)
		embedding := all.Embedding[i*all.Width:][:all.Width]
		item := map[string]any{"agent": id, "group": id / size, "embedding": embedding, "state": state}
		if err := p.Item(item, id, id/size, strings.Trim(fmt.Sprint(embedding), "[]"), text); err != nil {
			return err
		}
	}
	return nil
}

// swarmQuery prints the states of agents or groups in the order of the ids on the command line.
// The fields depend on how the swarm is addressed: votes and states, or the variables of the
// cell.
//
// NAME may be the name of a run. Its answers are those of the moment at which the GPU agent reads
// the query, between two batches. A query is an entry of the log that changes nothing. It needs an
// agent that serves the shards of the ids.
func swarmQuery(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error {
	agents, _ := cmd.Flags().GetString("agents")
	groups, _ := cmd.Flags().GetString("groups")
	keys, _ := cmd.Flags().GetStringArray("key")
	outcome, _ := cmd.Flags().GetBool("outcome")
	knowledge, _ := cmd.Flags().GetString("knowledge")
	given := 0
	for _, is := range []bool{agents != "", groups != "", len(keys) > 0, outcome, knowledge != ""} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return command.Usage("swarm query: use one of --agents, --groups, --key, --knowledge and --outcome, as " +
			"in --agents 1,5-9")
	case outcome:
		return swarmcommand.Outcome(cmd, s)
	case knowledge != "":
		ids, err := parseIDs(knowledge)
		if err != nil {
			return command.Usage("swarm query: --knowledge: %v", err)
		}
		return swarmcommand.Knowledge(cmd, s, ids)
	case len(keys) > 0:
		return queryKeys(cmd, c, s, keys)
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
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), columns...)
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

// queryKeys prints the groups of the entities with some keys, or of the series of a run without a
// key with these names.
//
// Fields: name, key (the values by key column), group, shard and state by variable.
func queryKeys(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm, keys []string) error {
	if s.Spec().ByAgent() {
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
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "KEY", "GROUP", "ROUND", "STATE")
	if err != nil {
		return err
	}
	for _, one := range all {
		if err := p.Item(one, one.Name, one.Group, one.State["round"], one.Text); err != nil {
			return err
		}
	}
	return p.End()
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
func showAgents(cmd *cobra.Command, s *swarmclient.Swarm, p *command.Printer, ids []uint32) error {
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
func showGroups(cmd *cobra.Command, s *swarmclient.Swarm, p *command.Printer, ids []uint32) error {
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

// swarmStateCommand returns exoswarm swarm state: the past of a swarm, by a replay of its log in
// this process.
func swarmStateCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "state NAME --at ENTRY", Short: "Show the state of agents after an entry of the log, or compare two " +
			"moments", Args: cobra.ExactArgs(1),
		Long: `Show the state that the agents of a swarm had after an entry of the log of a shard. This
process applies the entries of the log again, on its processor, and gets the same bits as the GPU
agent had. It changes nothing, and needs no GPU agent.

Without a group it shows the mean, the least and the largest value of each variable of the shard.
With --group or --key it shows the variables of that group and of its agents (docs/cells.md). With
--and it shows what differs at a second moment.

The replay begins with the latest snapshot before the entry that --snapshots has, else with the
first entry of the log. A log that was trimmed needs --snapshots.`,
		RunE: connect.Connected(swarmState),
	}
	f := c.Flags()
	f.Uint64("at", 0, "number of the entry after which the state is shown, from 1 (required)")
	f.Uint64("and", 0, "number of the entry of a second moment")
	f.Int("shard", 0, "number of the shard; with --group that of the group")
	f.Int("group", -1, "number of a group")
	f.String("key", "", "key of an entity, or name of a series of a run, in place of --group")
	f.Int("agents", 100, "number of agents of the group that are shown, up to 1000")
	f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as for gpuagent "+
		"--snapshots")
	keyFileFlag(f)
	f.Int64("memory", travel.DefaultMaxBytes>>20, "most MiB of state of the shard")
	return c
}

// swarmState prints the state of a shard at a moment, or what differs between two.
//
// Fields of a summary: variable, per (agent or group), mean, min and max; with --and also and, with
// the same three. Fields of a group: group or agent, and state by variable; with --and also and,
// and only rows that differ.
func swarmState(cmd *cobra.Command, args []string, c *natsq.Conn) (err error) {
	f := cmd.Flags()
	q := travel.Question{}
	q.Entry, _ = f.GetUint64("at")
	q.And, _ = f.GetUint64("and")
	q.Shard, _ = f.GetInt("shard")
	q.Group, _ = f.GetInt("group")
	q.Agents, _ = f.GetInt("agents")
	key, _ := f.GetString("key")
	memory, _ := f.GetInt64("memory")
	switch {
	case q.Entry == 0:
		return command.Usage("swarm state: use --at with the number of an entry, from 1")
	case f.Changed("and") && q.And == 0:
		return command.Usage("swarm state: --and 0: entries count from 1")
	case q.Agents < 1 || q.Agents > travel.MaxAgents:
		return command.Usage("swarm state: --agents %d: use 1 to %d", q.Agents, travel.MaxAgents)
	case f.Changed("group") && (key != "" || q.Group < 0):
		return command.Usage("swarm state: use --group with a number from 0, or --key")
	case memory < 1:
		return command.Usage("swarm state: --memory %d: use 1 or more", memory)
	}
	client, err := swarmClient(cmd, c)
	if err != nil {
		return err
	}
	// The name is looked up once. The replay uses the id, so that a swarm of the same name that is
	// made meanwhile is not mistaken for this one.
	s, err := client.Open(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	q.Swarm = s.Record().ID
	o := travel.Options{Conn: c, MaxBytes: memory << 20}
	if place, _ := f.GetString("snapshots"); place != "" {
		b, err := openBucket(cmd, place)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		o.Snapshots = b
	}
	// The guide is closed before the bucket, from which a replay may still read.
	guide, err := travel.New(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guide.Close()) }()
	// The group decides the shard: a --shard that differs is not used.
	if key != "" {
		if q.Group, err = guide.GroupOf(cmd.Context(), q.Swarm, key); err != nil {
			return err
		}
	}
	if shards := s.Record(); q.Group >= shards.Groups {
		return command.Usage("swarm state: --group %d: %s has the groups 0 to %d", q.Group, q.Swarm, shards.Groups-1)
	} else if q.Group >= 0 {
		q.Shard = shards.ShardOf(q.Group)
	}
	whole := q.Group < 0
	// Progress goes to stderr, at most every two seconds, so that the output stays a table or JSON.
	told := time.Now()
	q.Progress = func(entry, of uint64) {
		if time.Since(told) >= 2*time.Second {
			told = time.Now()
			fmt.Fprintf(cmd.ErrOrStderr(), "entry %d of %d is applied\n", entry, of)
		}
	}
	timeout, _ := f.GetDuration("timeout")
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), timeout, fmt.Errorf("the replay takes longer than %v: give "+
		"--timeout more, or take snapshots with exoswarm swarm snapshot", timeout))
	defer cancel()
	v, err := guide.At(ctx, q)
	if err != nil {
		return err
	}
	// How the answer was found is no part of it.
	for _, m := range v.Moments {
		fmt.Fprintln(cmd.ErrOrStderr(), momentLine(v, m))
	}
	if whole {
		return showSummary(cmd, v)
	}
	return showGroup(cmd, v)
}

// momentLine describes a moment: the entry, how many there are, where the replay began, and how
// long it took. An entry whose text cannot be read has no kind.
func momentLine(v travel.View, m travel.Moment) string {
	from := "the first entry of the log"
	switch m.Start.Kind {
	case travel.StartSnapshot:
		from = "snapshot " + m.Start.Name
	case travel.StartMoment:
		from = "the first moment"
	}
	text := fmt.Sprintf("shard %d after entry %d of %d", v.Shard, m.Entry.Seq, v.Last)
	if m.Entry.Kind != "" {
		text += fmt.Sprintf(" (%s, %s)", m.Entry.Kind, m.Entry.At.Format(time.RFC3339))
	}
	return text + fmt.Sprintf(": %d entries replayed from %s in %.2f s", m.Replayed, from, m.Seconds)
}

// showSummary prints each variable over all agents or groups of a shard, in the order of the layout
// of its pages. Values that are no numbers, NaN or infinite, take no part in mean, min and max.
func showSummary(cmd *cobra.Command, v travel.View) error {
	columns := []string{"VARIABLE", "PER", "MEAN", "MIN", "MAX"}
	if len(v.Moments) > 1 {
		columns = append(columns, "MEAN THEN", "MIN THEN", "MAX THEN")
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), columns...)
	if err != nil {
		return err
	}
	// A table has six digits; JSON has all of them.
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	for i, one := range v.Moments[0].Summary {
		item := map[string]any{
			"variable": one.Name, "per": one.Per, "mean": one.Mean, "min": one.Min, "max": one.Max,
		}
		row := []any{one.Name, one.Per, number(one.Mean), number(one.Min), number(one.Max)}
		if len(v.Moments) > 1 {
			and := v.Moments[1].Summary[i]
			item["and"] = map[string]any{"mean": and.Mean, "min": and.Min, "max": and.Max}
			row = append(row, number(and.Mean), number(and.Min), number(and.Max))
		}
		if err := p.Item(item, row...); err != nil {
			return err
		}
	}
	return p.End()
}

// showGroup prints the variables of a group and of its agents, and with two moments those rows that
// differ. The group comes first, then its agents by number, at most --agents of them. Without a
// difference it prints nothing, which is success.
func showGroup(cmd *cobra.Command, v travel.View) error {
	two := len(v.Moments) > 1
	columns := []string{"OF", "STATE"}
	if two {
		columns = append(columns, "STATE THEN")
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), columns...)
	if err != nil {
		return err
	}
	// One item of the group (row 0 of its variables) or of an agent. JSON has the state at the
	// second moment under "and"; a row without a difference is left out.
	show := func(what string, id int64, per string, row int) error {
		at, text := momentRow(v.Group, per, row, false, two)
		item := map[string]any{what: id, "state": at}
		of := fmt.Sprintf("%s %d", what, id)
		if !two {
			return p.Item(item, of, text)
		}
		and, then := momentRow(v.Group, per, row, true, two)
		if len(and) == 0 {
			return nil
		}
		item["and"] = and
		return p.Item(item, of, text, then)
	}
	if err := show("group", int64(v.Group.Group), "group", 0); err != nil {
		return err
	}
	// Agents of a group have successive numbers in the swarm.
	for i := range v.Group.Agents {
		if err := show("agent", v.Group.FirstAgent+int64(i), "agent", i); err != nil {
			return err
		}
	}
	return p.End()
}

// momentRow returns the variables of an agent or of a group, as entities.Row does: at the second
// moment with and, and only those that differ with changed.
func momentRow(g *travel.Group, per string, row int, and, changed bool) (state map[string]any, text string) {
	state = map[string]any{}
	var parts []string
	for _, v := range g.Variables {
		if v.Per != per || row >= len(v.At) || changed && !slices.Contains(v.Changed, row) {
			continue
		}
		values := v.At[row]
		if and {
			values = v.And[row]
		}
		shown := strings.Trim(fmt.Sprint(values), "[]")
		if state[v.Name] = values; v.Width == 1 {
			state[v.Name] = values[0]
		}
		if v.Width > entities.LongVariable {
			shown = fmt.Sprintf("(%d)", v.Width)
		}
		parts = append(parts, v.Name+" "+shown)
	}
	return state, strings.Join(parts, ", ")
}
