package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/clustercommand"
	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/cmd/internal/swarmcommand"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	ops "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// swarmCommand returns exoswarm swarm. Package swarmclient does the work: the commands read flags
// and files, and print. Commands that act on agents write entries to the logs of the shards and
// wait for the answers, at most --timeout for each. list, get and orphans read records and logs and
// need no GPU agent.
func swarmCommand() *cobra.Command {
	create := &cobra.Command{
		Use: "create -f SPEC | create NAME --from SNAPSHOT", Short: "Create a swarm that lasts, and wait until GPU " +
			"agents serve it", Args: cobra.MaximumNArgs(1),
		Long: `Create a swarm that lasts until it is deleted, and wait until GPU agents serve it.
The specification addresses single agents (addressed: agent), or groups; then it has their number
(groups: N). The swarm of a run is created by exoswarm run, and ends with the run.

With --from the agents begin with the state of a snapshot. Name the place of the snapshots with
--snapshots, as the GPU agents do. The specification is then that of the snapshot. With -f it is
that of the file, which must have the same cell, seed, features, candidates and size of groups. If
you cannot reach the place, use -f, and --digest with the digest that exoswarm swarm snapshot
printed.

The new swarm may have more agents (--agents), which begin in their initial state, or fewer. It may
have another number of shards. A snapshot of a run becomes a swarm with as many groups. Keep the
snapshot as long as the swarm: an agent process without a checkpoint begins with it.

A file of edges (neighbours: {graph: FILE}) that is too large for the record of a swarm is put into
the place of --snapshots, below graphs/, under its digest. Keep it as long as the swarm, or
snapshots of it: exoswarm swarm delete --snapshots removes it when nobody needs it.`,
		RunE: connect.Connected(swarmCreate),
	}
	create.Flags().StringP("file", "f", "", "specification of the swarm, with addressed: agent, or groups: N")
	create.Flags().String("from", "", "name of the snapshot with which the agents begin")
	create.Flags().String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as "+
		"for gpuagent --snapshots")
	keyFileFlag(create.Flags())
	create.Flags().String("digest", "", "SHA-256 of the snapshot's manifest, in place of --snapshots")
	create.Flags().Int64("agents", 0, "number of agents, a multiple of agents_per_group; 0: that of the specification")
	create.Flags().Int("shards", 0, "number of shards, each with a log and served by one GPU agent at a time; 0: that "+
		"of the specification")
	snap := &cobra.Command{
		Use: "snapshot NAME", Short: "Save the state of all agents, to create swarms from it", Args: cobra.ExactArgs(1),
		Long: `Have the GPU agents write a snapshot to their --snapshots: the state of all agents
after the entries before this one. The swarm answers nothing else meanwhile.`,
		RunE: withSwarm(swarmSnapshot),
	}
	snap.Flags().String("name", "", "name of the snapshot, 1 to 64 letters, digits, '-' or '_'; empty: NAME and the "+
		"time")
	snap.Flags().Bool("wait", true, "wait until the snapshot is complete")
	reset := &cobra.Command{
		Use: "reset NAME", Short: "Return all agents to their initial state; their weights stay",
		Args: cobra.ExactArgs(1), RunE: recordedOnSwarm("swarm.reset", swarmReset),
	}
	trim := &cobra.Command{
		Use: "trim NAME --to SNAPSHOT", Short: "Remove the entries that a snapshot contains from the log",
		Args: cobra.ExactArgs(1),
		Long: `Remove the entries that a snapshot of the swarm contains from its log, with their
answers. The command first reads and checks every file of the snapshot. From then on an agent
process without a checkpoint begins with the snapshot. So all GPU agents must have access to it, and
it must stay until the log is trimmed to a later one.`,
		RunE: recordedOnSwarm("swarm.trim", swarmTrim),
	}
	trim.Flags().String("to", "", "name of the snapshot (required)")
	trim.Flags().String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as the "+
		"GPU agents have it (required)")
	keyFileFlag(trim.Flags())
	list := &cobra.Command{
		Use: "list", Short: "List the swarms, also those of runs", Args: cobra.NoArgs,
		RunE: connect.Connected(swarmList),
	}
	tick := &cobra.Command{
		Use: "tick NAME", Short: "Step all agents, each with the inputs that it holds", Args: cobra.ExactArgs(1),
		RunE: onSwarm(swarmTick),
	}
	tick.Flags().Int("count", 1, "number of steps")
	observe := &cobra.Command{
		Use: "observe NAME --input FILE", Short: "Send observations to agents or groups, and print their " +
			"decisions", Args: cobra.ExactArgs(1),
		Long: `Read observations, one per row, and print the decisions. The file is CSV with a header
or, if its name ends with .ndjson or .jsonl, JSON lines.

If the groups of the swarm are addressed, the columns are group, the timestamp and the features of
the specification, and the rows of a group are in the order of their times. The agents of the group
step. If the agents are addressed, the columns are agent and the features. Each agent holds its
inputs, steps once and votes.

A file that is not valid changes nothing. A large file takes several entries of the log.`,
		RunE: onSwarm(swarmObserve),
	}
	observe.Flags().String("input", "", "file of observations, or - for standard input (required)")
	query := &cobra.Command{
		Use: "query NAME", Short: "Show the state of agents or groups; it changes nothing", Args: cobra.ExactArgs(1),
		RunE: withSwarm(swarmQuery),
		Long: `Show the state of agents or groups. If the groups of the swarm are addressed, that is
all state variables of the cell (docs/cells.md) and, for agents, their embeddings. It changes
nothing. NAME may be that of a run, or the id of its swarm, while the run reads its input. Agent I
of group G has the id G times agents_per_group plus I.

--key shows the group of an entity, by the value of its key column. Several columns are written as
site=a,device=7; values with commas or quotes are quoted. Of a run without a key it is the name of
a series. The flag may be given several times.

--outcome shows the decision of the last vote of a swarm whose agents are addressed, with its leader
and the term of that; nothing before the first vote and after a reset.

--knowledge shows knowledge nodes by their numbers, of a swarm whose agents hear them (hear:
[knowledge]): how often each was updated, and its age. That is the most steps that one of its groups
has made since the last update: by observations, or by ticks that did not update the node. Without a
number of nodes (knowledge: {nodes: N}) a node has the number of its group. Nodes by vote have those
of candidates, from 0 on, and nodes by key the remainders of ids.`,
	}
	query.Flags().String("knowledge", "", "numbers and ranges of knowledge nodes to show, as in 1,5-9")
	query.Flags().Bool("outcome", false, "show the decision of the last vote")
	query.Flags().String("agents", "", "ids and ranges of agents, as in 1,5-9")
	query.Flags().String("groups", "", "numbers and ranges of groups, as in 1,5-9")
	query.Flags().StringArray("key", nil, "key of an entity, as in sensor-17 or site=a,device=7")
	remove := &cobra.Command{
		Use: "delete NAME", Short: "Delete a swarm, its log and the state of its agents", Args: cobra.ExactArgs(1),
		RunE: connect.Connected(swarmDelete),
	}
	remove.Flags().Bool("yes", false, "do not ask for confirmation")
	remove.Flags().String("snapshots", "", "place of the snapshots, for the edges of a large graph: they are removed "+
		"there, unless another swarm of this cluster or a snapshot uses them")
	keyFileFlag(remove.Flags())
	orphans := &cobra.Command{
		Use: "orphans", Short: "List the remains of swarms whose run is over, and remove them with --delete",
		Args: cobra.NoArgs, RunE: connect.Connected(swarmOrphans),
		Long: `List swarms of runs whose job is over or does not exist, swarms whose removal was
interrupted, and logs without a swarm. CPU agents look for these every minute, and remove those that
they find twice in turn. So the list is usually empty while a CPU agent runs.

With --snapshots the list also has the edges of graphs in that place that no swarm of this cluster and no
snapshot of the place uses. Do not remove them in a place that other clusters share, or while somebody
creates a swarm with such a graph.`,
	}
	orphans.Flags().String("snapshots", "", "place of the snapshots, in which to look for edges of graphs")
	keyFileFlag(orphans.Flags())
	orphans.Flags().Bool("delete", false, "remove what is listed")
	all := []*cobra.Command{
		create, list, swarmGetCommand(), swarmPagesCommand(), tick, observe, query, swarmStateCommand(),
		swarmcommand.NewVote(onSwarm),
		swarmcommand.NewEmitted(withSwarm), swarmcommand.NewFuse(onSwarm), swarmcommand.NewLearn(onSwarm),
		swarmcommand.NewCompute(onSwarm), snap,
		trim, reset, remove, orphans,
	}
	for _, c := range all {
		connect.Flags(c.Flags())
		// The others print a list; these print a line to stderr.
		if c != remove && c != create && c != reset && c != trim {
			command.ListFlag(c.Flags())
		}
		// These wait for answers of GPU agents.
		if c != remove && c != list && c != orphans {
			c.Flags().Duration("timeout", time.Minute, "longest wait for each answer")
		}
	}
	hooks := swarmcommand.ExportHooks{WithSwarm: withSwarm, Open: openBucket, Operate: operate}
	all = append(all, swarmcommand.NewExport(hooks), swarmcommand.NewRender(onSwarm),
		swarmcommand.NewWatch(onSwarm, parseIDs),
		clustercommand.Explain("explain NAME", "Tell why a swarm does not progress.", ops.ExplainSwarm))
	return command.Group("swarm", "Create, step, query and delete swarms; query those of runs too", all...)
}

// swarmClient returns a client of the swarms that a connection reaches. Its timeout is the flag of
// that name, where the command has one. The client uses the connection and does not close it.
func swarmClient(cmd *cobra.Command, c *natsq.Conn) (*swarmclient.Client, error) {
	o := swarmclient.Options{Swarms: c.Swarms, Agents: c.Registry, Jobs: c.Queue}
	if cmd.Flags().Lookup("timeout") != nil {
		o.Timeout, _ = cmd.Flags().GetDuration("timeout")
		// 0 would be the default of package swarmclient, which is not what the user asked for.
		if o.Timeout <= 0 {
			return nil, command.Usage("--timeout %v: use more than 0", o.Timeout)
		}
	}
	return swarmclient.New(o)
}

// noteUnserved says what a command waits for if there is no GPU agent. It is a hint: a login that may
// not read the registry gets none.
func noteUnserved(cmd *cobra.Command, c *natsq.Conn) {
	agents, err := c.Registry.Agents(cmd.Context())
	serves := func(a jobs.Agent) bool { return a.Pool == jobs.PoolGPU && a.Lost == nil }
	if err != nil || slices.ContainsFunc(agents, serves) {
		return
	}
	patience, _ := cmd.Flags().GetDuration("timeout")
	cmd.PrintErrf("no GPU agent serves swarms: start one (gpuagent --nats URL); waiting up to %v\n", patience)
}

// onSwarm makes a command's RunE of a function that needs the swarm that the first argument names.
// A name without a swarm is jobs.ErrNotFound, and fn is not called.
func onSwarm(fn func(cmd *cobra.Command, s *swarmclient.Swarm) error) func(*cobra.Command, []string) error {
	return withSwarm(func(cmd *cobra.Command, _ *natsq.Conn, s *swarmclient.Swarm) error { return fn(cmd, s) })
}

// recordedOnSwarm is onSwarm for an action that the audit has under a name.
func recordedOnSwarm(name string, fn func(cmd *cobra.Command, s *swarmclient.Swarm) error) func(*cobra.Command,
	[]string) error {
	return withSwarm(func(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error {
		return recorded(cmd, c, name, s.ID(), func() error { return fn(cmd, s) })
	})
}

// withSwarm is onSwarm for a function that needs the connection too.
func withSwarm(fn func(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error) func(*cobra.Command,
	[]string) error {
	return connect.Connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
		client, err := swarmClient(cmd, c)
		if err != nil {
			return err
		}
		s, err := client.Open(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		noteUnserved(cmd, c)
		return fn(cmd, c, s)
	})
}

// graphs are those in a place of snapshots.
var graphs = swarmcommand.OpenGraphs(openBucket)

// swarmCreate creates a swarm, and returns when GPU agents serve all its shards. Its only output
// is a line on stderr. After --timeout the swarm stays, and waits for its agents.
//
// A name that is taken is jobs.ErrExists. A swarm that no agent can serve is removed again, and
// its refusal is the error.
func swarmCreate(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	spec, from, err := specOf(cmd, args)
	if err != nil {
		return err
	}
	if err := graphs.Store(cmd, spec); err != nil {
		return err
	}
	client, err := swarmClient(cmd, c)
	if err != nil {
		return err
	}
	noteUnserved(cmd, c)
	if _, err := client.Create(cmd.Context(), spec, from); err != nil {
		return err
	}
	over := ""
	if spec.Shards > 1 {
		over = fmt.Sprintf(", %d shards", spec.Shards)
	}
	cmd.PrintErrf("swarm %s is served: %d agents in %d groups%s\n", spec.Name,
		int64(spec.Groups())*int64(spec.AgentsPerGroup), spec.Groups(), over)
	return nil
}

// specOf returns the specification of the swarm to create, from -f or from the snapshot of --from,
// with --agents and --shards applied and checked again, and the snapshot with which its agents
// begin (nil: none). Errors are of usage, but for those of reading the place of the snapshot.
func specOf(cmd *cobra.Command, args []string) (spec *swarm.Spec, from *swarms.SnapshotRef, err error) {
	f := cmd.Flags()
	file, _ := f.GetString("file")
	name, _ := f.GetString("from")
	switch {
	case file == "" && name == "":
		return nil, nil, command.Usage("swarm create: -f is missing: name a swarm spec, such as " +
			"examples/simulation/swarm.yaml, or a snapshot with --from")
	case file != "" && len(args) > 0:
		return nil, nil, command.Usage("swarm create: -f %s says how the swarm is called: leave %s out", file, args[0])
	case file == "" && len(args) == 0:
		return nil, nil, command.Usage("swarm create: the name of the new swarm is missing: write exoswarm swarm "+
			"create NAME --from %s", name)
	}
	// Three forms: -f alone, --from alone, and both, which must fit together.
	if file != "" {
		if spec, err = userfile.ReadSpec(file); err != nil {
			return nil, nil, err
		}
	}
	if name != "" {
		var kept *swarm.Spec
		if from, kept, err = snapshotOf(cmd, name); err != nil {
			return nil, nil, err
		}
		switch {
		case spec == nil && kept == nil:
			return nil, nil, command.Usage("swarm create: --digest without -f: give the swarm's spec, or " +
				"--snapshots, where the snapshot has it")
		case spec == nil:
			spec = kept
			spec.Name = args[0]
		case kept != nil:
			if err := spec.Continues(kept); err != nil {
				return nil, nil, command.Usage("swarm create: snapshot %s: %v: correct %s", name, err, file)
			}
		}
	}
	agents, _ := f.GetInt64("agents")
	shards, _ := f.GetInt("shards")
	var given []string
	if agents != 0 {
		// A swarm whose groups are addressed grows by whole groups.
		switch per := int64(spec.AgentsPerGroup); {
		case spec.ByAgent():
			spec.Agents = agents
		case agents%per != 0 || agents/per > swarms.MaxGroups:
			return nil, nil, command.Usage("swarm create: --agents %d: use a multiple of agents_per_group, %d, and "+
				"at most %d groups", agents, per, swarms.MaxGroups)
		default:
			spec.GroupCount = int(agents / per)
		}
		given = append(given, "--agents")
	}
	if shards != 0 {
		spec.Shards = shards
		given = append(given, "--shards")
	}
	// given names the flags for the error: the limits of a specification are about fields of a
	// file.
	if len(given) > 0 {
		// FromJSON checks the whole specification again: the flags may break limits that held
		// before.
		data, err := json.Marshal(spec)
		if err == nil {
			spec, err = swarm.FromJSON(data)
		}
		if err != nil {
			return nil, nil, command.Usage("swarm create: %s: %v", strings.Join(given, ", "), err)
		}
	}
	if spec.OfRun() {
		return nil, nil, command.Usage("swarm create: %s does not say how many groups there are: write groups: N, "+
			"or hand it to exoswarm run, whose input says", cmp.Or(file, "snapshot "+name))
	}
	return spec, from, nil
}

// swarmList prints all swarms, also those of runs, one item for each, with the names of the
// agents that hold its shards and the states of the shards that are not served. A record that
// cannot be read is an item with an error.
//
// Fields: id, swarm (the record), holders by shard (an empty name: none), state (that of the
// first shard that is not served), shards (those that are not served), and error. The table
// counts the served shards, as in 3/4.
func swarmList(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	all, err := c.Swarms.Swarms(cmd.Context())
	if err != nil {
		return err
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(),
		"SWARM", "NAME", "ADDRESSED", "CELL", "AGENTS", "GROUPS",
		"SHARDS", "CREATED", "STATE", "ERROR")
	if err != nil {
		return err
	}
	census, err := c.Swarms.Census(cmd.Context())
	if err != nil {
		return err
	}
	for _, s := range all {
		// A record that this version cannot read has only its id and the error, so Swarm is a
		// pointer.
		item := struct {
			ID      string        `json:"id"`
			Swarm   *swarms.Swarm `json:"swarm,omitempty"`
			Holders []string      `json:"holders,omitempty"` // by shard; of one that nobody has an empty one
			State   string        `json:"state,omitempty"`
			// Shards are those that are not served: they are replayed, or nobody holds them.
			Shards []swarmclient.ShardState `json:"shards,omitempty"`
			Error  string                   `json:"error,omitempty"`
		}{ID: s.ID}
		spec, err := &swarm.Spec{}, s.Err
		if err == nil {
			item.Swarm = &s.Swarm
			spec, err = swarm.FromJSON(s.Swarm.Spec)
		}
		if err != nil {
			item.Error = err.Error()
			if err := p.Item(item, s.ID, "", "", "", "", "", "", "", "", err); err != nil {
				return err
			}
			continue
		}
		// Groups of the record count, since those of the specification may be open for a run.
		agents := int64(s.Swarm.Groups) * int64(spec.AgentsPerGroup)
		shards, served := s.Swarm.ShardCount(), 0
		// STATE of the table is that of the worst shard; -o json lists every shard that is not
		// served.
		states := swarmclient.ShardStates(s.Swarm, census.Holders, census)
		for _, st := range states {
			if item.Holders = append(item.Holders, st.Holder); st.Holder != "" {
				served++
			}
			if st.State != swarmclient.StateServed {
				item.Shards = append(item.Shards, st)
			}
		}
		item.State = swarmclient.SummaryState(states)
		if err := p.Item(item, s.ID, spec.Name, spec.Addressed, spec.Cell.Kind, agents, s.Swarm.Groups,
			fmt.Sprintf("%d/%d", served, shards), s.Swarm.Created.Format(time.RFC3339), item.State, ""); err != nil {
			return err
		}
	}
	return p.End()
}

// swarmTick steps all agents, and prints for each candidate how many agents vote for it and how
// many groups have decided for it after the last step. The last item, none, counts the groups
// without a decision.
//
// Fields: candidate, agents (left out for none) and groups. The number of steps of all agents
// together goes to stderr. The tallies are sums over all shards.
func swarmTick(cmd *cobra.Command, s *swarmclient.Swarm) error {
	count, _ := cmd.Flags().GetInt("count")
	if count < 1 {
		return command.Usage("swarm tick: --count %d: use 1 or more", count)
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "CANDIDATE", "AGENTS", "GROUPS")
	if err != nil {
		return err
	}
	t, err := s.Tick(cmd.Context(), count)
	if err != nil {
		return err
	}
	type item struct {
		Candidate string  `json:"candidate"`
		Agents    *uint64 `json:"agents,omitempty"` // none of those who have not decided
		Groups    uint64  `json:"groups"`
	}
	for c, name := range s.Spec().Vote.Candidates {
		if err := p.Item(item{name, &t.Tally[c], t.Decided[c]}, name, t.Tally[c], t.Decided[c]); err != nil {
			return err
		}
	}
	// Every agent has voted after a step, so only groups can be without a candidate.
	if err := p.Item(item{"none", nil, t.Undecided}, "none", "", t.Undecided); err != nil {
		return err
	}
	if err := p.End(); err != nil {
		return err
	}
	cmd.PrintErrf("%d ticks, %d steps of agents\n", count, t.Stepped)
	return nil
}

// swarmDelete removes a swarm after a confirmation, or without one with --yes. A name without a
// swarm is jobs.ErrNotFound, but logs that an interrupted removal left are removed.
//
// The swarm of a run whose job is not over is refused: the job would fail. The confirmation comes
// after the swarm was found, so a wrong name asks nothing.
func swarmDelete(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	client, err := swarmClient(cmd, c)
	if err != nil {
		return err
	}
	// The first call checks and asks, and the second one deletes, between two records of the audit.
	if err := client.Delete(cmd.Context(), args[0], func() error {
		if err := command.Confirm(cmd, fmt.Sprintf("delete swarm %s, its log, and the state of all its agents",
			args[0])); err != nil {
			return err
		}
		return errConfirmed
	}); !errors.Is(err, errConfirmed) {
		return err
	}
	graph := swarmcommand.GraphOf(cmd.Context(), c, args[0])
	if _, err := operate(cmd, c, action.Request{Action: "swarm.delete", Object: args[0]}); err != nil {
		return err
	}
	cmd.PrintErrf("swarm %s is deleted\n", args[0])
	return graphs.Drop(cmd, c, graph)
}

// errConfirmed ends a removal that would begin now.
var errConfirmed = errors.New("confirmed")

// swarmOrphans prints the remains of ended runs and of interrupted removals, one item for each,
// a swarmlog.Orphan, and removes them with --delete.
//
// Fields: swarm (its record), job of a run, logs and reason. Removal ends at the first error, and
// another call continues. The remains are looked up once; CPU agents look twice, because a run may
// just be starting.
func swarmOrphans(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	all, err := c.Swarms.Orphans(cmd.Context())
	if err != nil {
		return err
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "SWARM", "JOB", "LOGS", "REASON")
	if err != nil {
		return err
	}
	for _, o := range all {
		if err := p.Item(o, o.Swarm.ID, o.Job, len(o.Logs), o.Reason); err != nil {
			return err
		}
	}
	unused, err := graphs.List(cmd, c, p)
	if err != nil {
		return err
	}
	if err := p.End(); err != nil {
		return err
	}
	if remove, _ := cmd.Flags().GetBool("delete"); !remove {
		return nil
	}
	// What is removed is what was printed: remains that appear meanwhile stay for the next call.
	// The audit gets one record for all of them, also after an error.
	removed := len(all) + len(unused)
	if err := recorded(cmd, c, "swarm.orphans", fmt.Sprintf("%d removed", removed), func() error {
		for _, o := range all {
			if err := c.Swarms.RemoveOrphan(cmd.Context(), o); err != nil {
				return err
			}
		}
		return graphs.DropAll(cmd, c, unused)
	}); err != nil {
		return err
	}
	cmd.PrintErrf("%d removed\n", removed)
	return nil
}
