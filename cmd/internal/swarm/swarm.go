// Package swarm has the commands about swarms, their specifications and their snapshots.
package swarm

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/gpuagents/state"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Command returns exoswarm swarm with its explain. Package swarmclient does the work: the commands
// read flags and files, and print. Commands that act on agents write entries to the logs of the
// shards and wait for the answers, at most --timeout for each. list, get and orphans read records
// and logs and need no GPU agent.
func Command(explain cli.Verb) *cobra.Command {
	cmd := cli.Noun{
		Use: "swarm", Short: "Create swarms of agents, step, feed, query, draw and delete them",
		Names: cli.SwarmNames,
		Verbs: []cli.Verb{
			createVerb, listVerb, getVerb, pagesVerb, tickVerb, sayVerb, observeVerb, queryVerb, stateVerb, voteVerb,
			emittedVerb,
			fuseVerb, learnVerb, adoptVerb, computeVerb, trimVerb, resetVerb, deleteVerb, orphansVerb, exportVerb,
			renderVerb, watchVerb, explain,
		},
	}.Command()
	// The former name of exoswarm snapshot create.
	snapshot := snapshotVerb("snapshot NAME").Command()
	snapshot.Hidden = true
	cmd.AddCommand(snapshot)
	return cmd
}

// snapshotVerb returns exoswarm snapshot create.
func snapshotVerb(use string) cli.Verb {
	return cli.Verb{
		Use: use, Short: "Save the state of all agents, to create swarms from it", Lists: true,
		Long: `Have the GPU agents write a snapshot to their --snapshots: the state of all agents
after the entries before this one. The swarm answers nothing else meanwhile.`,
		Flags: func(f *pflag.FlagSet) {
			f.String("name", "", "name of the snapshot, 1 to 64 letters, digits, '-' or '_'; empty: NAME and the "+
				"time")
			f.Bool("wait", true, "wait until the snapshot is complete")
			timeoutFlag(f)
		},
		Do: withSwarm(swarmSnapshot), Names: cli.SwarmNames,
	}
}

// timeoutFlag adds the flag of commands that wait for answers of GPU agents.
func timeoutFlag(f *pflag.FlagSet) {
	f.Duration("timeout", time.Minute, "longest wait for each answer")
}

var (
	createVerb = cli.Verb{
		Use:   "create [NAME] (-f SPEC | --from SNAPSHOT)",
		Short: "Create a swarm that lasts, and wait until GPU agents serve it",
		Long: `Create a swarm that lasts until it is deleted, and wait until GPU agents serve it.
The specification addresses single agents (addressed: agent), or groups; then it has their number
(groups: N). The swarm of a run is created by exoswarm run, and ends with the run.

With --from the agents begin with the state of a snapshot. Name the place of the snapshots with
--snapshots, as the GPU agents do. The swarm then has the specification of the snapshot, or with
-f of the file, which must have the same cell, seed, features, candidates and size of groups. If
you cannot reach the place, use -f, and --digest with the digest that exoswarm snapshot create
printed.

The new swarm may have more agents (--agents), which begin in their initial state, or fewer. It may
have another number of shards. A snapshot of a run becomes a swarm with as many groups. Keep the
snapshot as long as the swarm: an agent process without a checkpoint begins with it.

A file of edges (neighbours: {graph: FILE}) that is too large for the record of a swarm is put into
the place of --snapshots, below graphs/, under its digest. Keep it as long as the swarm, or
snapshots of it: exoswarm swarm delete --snapshots removes it when nobody needs it.

A model (cell: {kind: gru, model: NAME}) is read from the place of --snapshots too, for its digest. The
specification may have the digest itself, as model_sha256. Keep the model as long as the swarm. Of a
language model (kind: transformer) the size of its cache and the first tokens of the candidates are read
as well.`,
		Flags: func(f *pflag.FlagSet) {
			f.StringP("file", "f", "", "specification of the swarm, with addressed: agent, or groups: N")
			f.String("from", "", "name of the snapshot with which the agents begin")
			f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as "+
				"for gpuagent --snapshots")
			f.String("digest", "", "SHA-256 of the snapshot's manifest, in place of --snapshots")
			f.Int64("agents", 0, "number of agents, a multiple of agents_per_group; 0: as in the specification")
			f.Int("shards", 0, "number of shards, each with a log and served by one GPU agent at a time; 0: as "+
				"in the specification")
			models.KeyFileFlag(f)
			timeoutFlag(f)
		},
		Do: cli.Link(swarmCreate),
	}
	listVerb = cli.Verb{
		Use: "list", Short: "List the swarms, also swarms of runs", Lists: true, Do: cli.Queue(swarmList),
	}
	tickVerb = cli.Verb{
		Use: "tick NAME", Short: "Step all agents, each with the inputs that it holds", Lists: true,
		Flags: func(f *pflag.FlagSet) {
			f.Int("count", 1, "number of steps")
			timeoutFlag(f)
		},
		Do: onSwarm(swarmTick),
	}
	observeVerb = cli.Verb{
		Use:   "observe NAME --input FILE",
		Short: "Send observations to agents or groups, and print their decisions", Lists: true,
		Long: `Read observations, one per row, and print the decisions. The file is CSV with a header
or, if its name ends with .ndjson or .jsonl, JSON lines.

If the groups of the swarm are addressed, the columns are group, the timestamp and the features of
the specification, and the rows of a group are in the order of their times. The agents of the group
step. If the agents are addressed, the columns are agent and the features. Each agent holds its
inputs, steps once and votes.

A file that is not valid changes nothing. A large file takes several entries of the log.`,
		Flags: func(f *pflag.FlagSet) {
			f.String("input", "", "file of observations, or - for standard input (required)")
			timeoutFlag(f)
		},
		Before: checkObserve, Do: onSwarm(swarmObserve),
	}
	queryVerb = cli.Verb{
		Use: "query NAME", Short: "Show the state of agents or groups; it changes nothing", Lists: true,
		Long: `Show the state of agents or groups. If the groups of the swarm are addressed, that is
all state variables of the cell (docs/cells.md) and, for agents, their embeddings. It changes
nothing. NAME may be a run, or the id of its swarm, while the run reads its input. Agent I
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
		Flags: func(f *pflag.FlagSet) {
			f.String("knowledge", "", "numbers and ranges of knowledge nodes to show, as in 1,5-9")
			f.Bool("outcome", false, "show the decision of the last vote")
			f.String("agents", "", "ids and ranges of agents, as in 1,5-9")
			f.String("groups", "", "numbers and ranges of groups, as in 1,5-9")
			f.StringArray("key", nil, "key of an entity, as in sensor-17 or site=a,device=7")
			timeoutFlag(f)
		},
		Before: checkQuery, Do: withSwarm(swarmQuery),
	}
	trimVerb = cli.Verb{
		Use: "trim NAME --to SNAPSHOT", Short: "Remove the entries that a snapshot contains from the log",
		Long: `Remove the entries that a snapshot of the swarm contains from its log, with their
answers. The command first reads and checks every file of the snapshot. From then on an agent
process without a checkpoint begins with the snapshot. So all GPU agents must have access to it, and
it must stay until the log is trimmed to a later one.`,
		Flags: func(f *pflag.FlagSet) {
			f.String("to", "", "name of the snapshot (required)")
			f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as the "+
				"GPU agents have it (required)")
			models.KeyFileFlag(f)
			timeoutFlag(f)
		},
		Do: recordedOnSwarm("swarm.trim", swarmTrim),
	}
	resetVerb = cli.Verb{
		Use: "reset NAME", Short: "Return all agents to their initial state; their weights stay", Flags: timeoutFlag,
		Do: recordedOnSwarm("swarm.reset", func(cmd *cobra.Command, s *swarmclient.Swarm) error {
			return s.Reset(cmd.Context())
		}),
	}
	deleteVerb = cli.Verb{
		Use: "delete NAME", Short: "Delete a swarm, its log and the state of its agents",
		Flags: func(f *pflag.FlagSet) {
			f.Bool("yes", false, "do not ask for confirmation")
			f.String("snapshots", "", "place of the snapshots, for the edges of a large graph: they are removed "+
				"there, unless another swarm of this cluster or a snapshot uses them")
			models.KeyFileFlag(f)
		},
		Do: cli.Queue(swarmDelete),
	}
	orphansVerb = cli.Verb{
		Use: "orphans", Short: "List the remains of swarms whose run is over, and remove them with --delete",
		Long: `List swarms of runs whose job is over or does not exist, swarms whose removal was
interrupted, and logs without a swarm. CPU agents look for these every minute, and remove what they
find twice in turn. So the list is usually empty while a CPU agent runs.

With --snapshots the list also has the edges of graphs in that place that no swarm of this cluster and no
snapshot of the place uses. Do not remove them in a place that other clusters share, or while somebody
creates a swarm with such a graph.`,
		Lists: true,
		Flags: func(f *pflag.FlagSet) {
			f.String("snapshots", "", "place of the snapshots, in which to look for edges of graphs")
			f.Bool("delete", false, "remove what is listed")
			models.KeyFileFlag(f)
		},
		Do: cli.Queue(swarmOrphans),
	}
)

// swarmClient returns a client of the swarms that a connection reaches. Its timeout is the flag of
// that name, where the command has one. The client uses the connection and does not close it.
func swarmClient(cmd *cobra.Command, c *natsq.Conn) (*swarmclient.Client, error) {
	o := swarmclient.Options{Swarms: c.Swarms, Agents: c.Registry, Beside: state.BesideBytes, Jobs: c.Queue}
	if cmd.Flags().Lookup("timeout") != nil {
		o.Timeout, _ = cmd.Flags().GetDuration("timeout")
		// 0 would be the default of package swarmclient, which is not what the user asked for.
		if o.Timeout <= 0 {
			return nil, command.Usage("--timeout %v: use more than 0", o.Timeout)
		}
	}
	return swarmclient.New(o)
}

// noteUnserved says what a command waits for if there is no GPU agent. It is a hint: a login that
// may not read the registry gets none.
func noteUnserved(cmd *cobra.Command, c *natsq.Conn) {
	agents, err := c.Registry.Agents(cmd.Context())
	serves := func(a jobs.Agent) bool { return a.Pool == jobs.PoolGPU && a.Lost == nil }
	if err != nil || slices.ContainsFunc(agents, serves) {
		return
	}
	patience, _ := cmd.Flags().GetDuration("timeout")
	cmd.PrintErrf("no GPU agent serves swarms: start one (gpuagent --nats URL); waiting up to %v\n", patience)
}

// onSwarm returns the action of a function that needs the swarm that the first argument names. A
// name without a swarm is jobs.ErrNotFound, and fn is not called.
func onSwarm(fn func(cmd *cobra.Command, s *swarmclient.Swarm) error) cli.Action {
	return withSwarm(func(cmd *cobra.Command, _ *natsq.Conn, s *swarmclient.Swarm) error { return fn(cmd, s) })
}

// recordedOnSwarm is onSwarm for an action that the audit has under a name.
func recordedOnSwarm(name string, fn func(cmd *cobra.Command, s *swarmclient.Swarm) error) cli.Action {
	return withSwarm(func(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error {
		return cli.Recorded(cmd, c, name, s.ID(), func() error { return fn(cmd, s) })
	})
}

// withSwarm is onSwarm for a function that needs the connection too.
func withSwarm(fn func(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error) cli.Action {
	return cli.Queue(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
		s, err := openSwarm(cmd, c, args[0])
		if err != nil {
			return err
		}
		noteUnserved(cmd, c)
		return fn(cmd, c, s)
	})
}

// openSwarm returns the swarm of a name.
func openSwarm(cmd *cobra.Command, c *natsq.Conn, name string) (*swarmclient.Swarm, error) {
	client, err := swarmClient(cmd, c)
	if err != nil {
		return nil, err
	}
	return client.Open(cmd.Context(), name)
}

// swarmCreate creates a swarm, and returns when GPU agents serve all its shards. Its only output
// is a line on stderr. After --timeout the swarm stays, and waits for its agents.
//
// A name that is taken is jobs.ErrExists. A swarm that no agent can serve is removed again, and
// its refusal is the error.
func swarmCreate(cmd *cobra.Command, args []string) error {
	spec, from, err := specOf(cmd, args)
	if err != nil {
		return err
	}
	return cli.Queue(func(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
		return createSwarm(cmd, c, spec, from)
	}).Run(cmd, args)
}

func createSwarm(cmd *cobra.Command, c *natsq.Conn, spec *swarm.Spec, from *swarms.SnapshotRef) error {
	spec, err := pinModel(cmd, spec)
	if err != nil {
		return err
	}
	if err := storeGraph(cmd, spec); err != nil {
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
// begin (nil: none). Errors are errors of usage, except errors of reading the place of the
// snapshot.
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
		case spec.Topology().ByAgent:
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

// swarmList prints all swarms, also swarms of runs, one item for each, with the names of the agents
// that hold its shards and the states of the shards that are not served. A record that cannot be
// read is an item with an error.
//
// Fields: id, swarm (the record), holders by shard (an empty name: none), state (of the first shard
// that is not served), shards (all shards that are not served), and error. The table counts the
// served shards, as in 3/4.
func swarmList(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	all, err := c.Swarms.Swarms(cmd.Context())
	if err != nil {
		return err
	}
	census, err := c.Swarms.Census(cmd.Context())
	if err != nil {
		return err
	}
	var rows []cli.Row
	for _, s := range all {
		// A record that this version cannot read has only its id and the error, so Swarm is a
		// pointer.
		item := struct {
			ID      string        `json:"id"`
			Swarm   *swarms.Swarm `json:"swarm,omitempty"`
			Holders []string      `json:"holders,omitempty"` // by shard; of one that nobody has an empty one
			State   string        `json:"state,omitempty"`
			// Shards are the shards that are not served: they are replayed, or nobody holds them.
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
			rows = append(rows, cli.NewRow(item, s.ID, "", "", "", "", "", "", "", "", err))
			continue
		}
		// Groups of the record count, since the specification of a run may leave their number open.
		agents := int64(s.Swarm.Groups) * int64(spec.AgentsPerGroup)
		shards, served := s.Swarm.ShardCount(), 0
		// STATE of the table is the state of the worst shard; -o json lists every shard that is not
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
		rows = append(rows, cli.NewRow(item, s.ID, spec.Name, spec.Addressed, spec.Cell.Kind, agents, s.Swarm.Groups,
			fmt.Sprintf("%d/%d", served, shards), s.Swarm.Created.Format(time.RFC3339), item.State, ""))
	}
	return cli.PrintRows(cmd, []string{
		"SWARM", "NAME", "ADDRESSED", "CELL", "AGENTS", "GROUPS", "SHARDS", "CREATED", "STATE", "ERROR",
	}, rows...)
}

// swarmTick steps all agents, and prints for each candidate how many agents vote for it and how
// many groups have decided for it after the last step. The last item, none, counts the groups
// without a decision.
//
// Fields: candidate, agents (left out for none) and groups. The number of steps of all agents
// together goes to stderr. The tallies are sums over all shards. Of conversations it prints the
// tokens that they have made: agent, at, token and ended.
func swarmTick(cmd *cobra.Command, s *swarmclient.Swarm) error {
	count, _ := cmd.Flags().GetInt("count")
	if count < 1 {
		return command.Usage("swarm tick: --count %d: use 1 or more", count)
	}
	t, err := s.Tick(cmd.Context(), count)
	if err != nil {
		return err
	}
	if s.Spec().Conversations() {
		if err := rowTable.Print(cmd, t.Tokens...); err != nil {
			return err
		}
		cmd.PrintErrf("%d ticks, %d conversations are active\n", count, t.Active)
		return nil
	}
	var all []candidateTally
	for c, name := range s.Spec().Vote.Candidates {
		all = append(all, candidateTally{name, &t.Tally[c], t.Decided[c]})
	}
	// Every agent has voted after a step, so only groups can be without a candidate.
	if err := tallyTable.Print(cmd, append(all, candidateTally{"none", nil, t.Undecided})...); err != nil {
		return err
	}
	cmd.PrintErrf("%d ticks, %d steps of agents\n", count, t.Stepped)
	return nil
}

// rowTable is what swarm tick prints of conversations.
var rowTable = cli.Table[swarms.TokenRow]{
	Columns: []string{"AGENT", "AT", "TOKEN", "ENDED"},
	Row:     func(t swarms.TokenRow) []any { return []any{t.Agent, t.At, t.Token, t.Ended} },
}

// candidateTally is an item of swarm tick.
type candidateTally struct {
	Candidate string  `json:"candidate"`
	Agents    *uint64 `json:"agents,omitempty"` // nil for none
	Groups    uint64  `json:"groups"`
}

var tallyTable = cli.Table[candidateTally]{
	Columns: []string{"CANDIDATE", "AGENTS", "GROUPS"},
	Row: func(t candidateTally) []any {
		if t.Agents == nil {
			return []any{t.Candidate, "", t.Groups}
		}
		return []any{t.Candidate, *t.Agents, t.Groups}
	},
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
	graph := graphOf(cmd.Context(), c, args[0])
	if _, err := cli.Operate(cmd, c, action.Request{Action: "swarm.delete", Object: args[0]}); err != nil {
		return err
	}
	cmd.PrintErrf("swarm %s is deleted\n", args[0])
	return dropGraph(cmd, c, graph)
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
	unused, err := listGraphs(cmd, c)
	if err != nil {
		return err
	}
	var rows []cli.Row
	for _, o := range all {
		rows = append(rows, cli.NewRow(o, o.Swarm.ID, o.Job, len(o.Logs), o.Reason))
	}
	for _, name := range unused {
		g := unusedGraph{name, "no swarm and no snapshot uses the graph"}
		rows = append(rows, cli.NewRow(g, g.Graph, "", 0, g.Reason))
	}
	if err := cli.PrintRows(cmd, []string{"SWARM", "JOB", "LOGS", "REASON"}, rows...); err != nil {
		return err
	}
	if remove, _ := cmd.Flags().GetBool("delete"); !remove {
		return nil
	}
	// What is removed is what was printed: remains that appear meanwhile stay for the next call.
	// The audit gets one record for all of them, also after an error.
	removed := len(all) + len(unused)
	if err := cli.Recorded(cmd, c, "swarm.orphans", fmt.Sprintf("%d removed", removed), func() error {
		for _, o := range all {
			if err := c.Swarms.RemoveOrphan(cmd.Context(), o); err != nil {
				return err
			}
		}
		return dropGraphs(cmd, c, unused)
	}); err != nil {
		return err
	}
	cmd.PrintErrf("%d removed\n", removed)
	return nil
}
