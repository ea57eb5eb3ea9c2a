package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
	"github.com/exoswarm/exoswarm/internal/specfile"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func swarmCommand() *cobra.Command {
	create := &cobra.Command{
		Use: "create -f SPEC | create NAME --from SNAPSHOT", Short: "Make a swarm that lasts, and wait until a GPU " +
			"agent serves it", Args: cobra.MaximumNArgs(1),
		Long: `Make a swarm that lasts, and wait until a GPU agent serves it: one whose agents are
addressed, or one whose groups are, of which the spec says how many (groups: N). The swarm of a run
is made by exoswarm run, and lasts as long as that.

With --from its agents begin as those of a snapshot. The spec is that of the snapshot, which is read
from --snapshots, the place that the GPU agents have; or that of -f, whose cell, seed, features,
candidates and groups must be the same. --agents makes them more, where those added have seen
nothing, or fewer. A snapshot of a run's swarm becomes one that lasts, with as many groups; one of a
swarm of several shards, or of one, begins a swarm of as many as one likes. Without access to that
place use -f and --digest, which exoswarm swarm snapshot prints. The snapshot must stay as long as
the swarm: an agent process without a checkpoint begins with it.`,
		RunE: connected(swarmCreate),
	}
	create.Flags().StringP("file", "f", "", "the swarm's spec, with addressed: agent, or groups: N")
	create.Flags().String("from", "", "name of a snapshot that its agents begin as")
	create.Flags().String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as "+
		"the GPU agents have it")
	keyFileFlag(create.Flags())
	create.Flags().String("digest", "", "SHA-256 of the snapshot's manifest, in place of --snapshots")
	create.Flags().Int64("agents", 0, "how many agents, whole groups; 0: as many as the spec says")
	create.Flags().Int("shards", 0, "over how many logs they are split, each served by one GPU agent at a time; 0: "+
		"as many as the spec says")
	snap := &cobra.Command{
		Use: "snapshot NAME", Short: "Keep what all agents are, to make swarms of it", Args: cobra.ExactArgs(1),
		Long: `Have the GPU agent write a snapshot to its --snapshots, as the entries before this one
have left the agents. The swarm stands still meanwhile.`,
		RunE: onSwarm(swarmSnapshot),
	}
	snap.Flags().String("name", "", "of the snapshot, 1 to 64 letters, digits, '-' or '_'; NAME and the time when "+
		"empty")
	snap.Flags().Bool("wait", true, "wait until it is complete")
	reset := &cobra.Command{
		Use: "reset NAME", Short: "Make all agents such as have seen nothing, with the weights that they have",
		Args: cobra.ExactArgs(1), RunE: onSwarm(swarmReset),
	}
	trim := &cobra.Command{
		Use: "trim NAME --to SNAPSHOT", Short: "Remove what a snapshot of the swarm stands for from its log",
		Args: cobra.ExactArgs(1),
		Long: `Remove the entries of a swarm's log that are in a snapshot of it, and their answers.
Every file of the snapshot is read and checked first. From then on an agent process without a
checkpoint begins with the snapshot, so all GPU agents must reach it, and it must stay until the log
is trimmed to a later one.`,
		RunE: onSwarm(swarmTrim),
	}
	trim.Flags().String("to", "", "name of the snapshot (required)")
	trim.Flags().String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as the "+
		"GPU agents have it (required)")
	keyFileFlag(trim.Flags())
	list := &cobra.Command{
		Use: "list", Short: "List the swarms, those of runs too", Args: cobra.NoArgs,
		RunE: connected(swarmList),
	}
	tick := &cobra.Command{
		Use: "tick NAME", Short: "Step all agents, each driven by the inputs that it holds", Args: cobra.ExactArgs(1),
		RunE: onSwarm(swarmTick),
	}
	tick.Flags().Int("count", 1, "steps")
	observe := &cobra.Command{
		Use: "observe NAME --input FILE", Short: "Give agents inputs of their own and step those, or groups " +
			"observations", Args: cobra.ExactArgs(1),
		Long: `Read observations, a row each, and print what is decided. Of a swarm whose groups are
addressed: the column group, that of the timestamp and the features of its spec; the agents of the
group step. Rows of a group stand in the order of their times. Of a swarm whose agents are
addressed: the column agent and the features of the swarm's spec, as CSV with a header or, where the
name ends with .ndjson or .jsonl, as a JSON object a line. Their agents hold the inputs, step once
and vote. A file that is not valid changes nothing; a large one goes into several entries of the
swarm's log.`,
		RunE: onSwarm(swarmObserve),
	}
	observe.Flags().String("input", "", "file of observations, or - for standard input (required)")
	query := &cobra.Command{
		Use: "query NAME", Short: "Show what agents or groups are; it changes nothing", Args: cobra.ExactArgs(1),
		RunE: onSwarm(swarmQuery),
		Long: `Show what agents or groups are: of a swarm whose groups are addressed all state
variables of the cell, and the embeddings of agents; docs/cells.md says what they mean. It changes
nothing. NAME may be that of a run, or the id of its swarm, as long as it reads. Agent I of group G
has the id G times agents_per_group plus I.`,
	}
	query.Flags().String("agents", "", "ids and ranges of them, as in 1,5-9")
	query.Flags().String("groups", "", "the same of groups")
	remove := &cobra.Command{
		Use: "delete NAME", Short: "End a swarm, and remove its log and its agents' state", Args: cobra.ExactArgs(1),
		RunE: connected(swarmDelete),
	}
	remove.Flags().Bool("yes", false, "do not ask")
	orphans := &cobra.Command{
		Use: "orphans", Short: "List what is left of swarms whose run is over, and remove it with --delete",
		Args: cobra.NoArgs, RunE: connected(swarmOrphans),
		Long: `List the swarms of runs whose job is over or does not exist, those whose removal was
interrupted, and logs that belong to no swarm. CPU agents look for them every minute and remove what
is an orphan twice in turn, so the list is empty unless none runs.`,
	}
	orphans.Flags().Bool("delete", false, "remove them")
	all := []*cobra.Command{
		create, list, swarmGetCommand(), tick, observe, query, swarmVoteCommand(),
		swarmFuseCommand(), snap, trim, reset, remove, orphans,
	}
	for _, c := range all {
		natsFlag(c.Flags())
		if c != remove && c != create && c != reset && c != trim {
			listing.Flag(c.Flags())
		}
		if c != remove && c != list && c != orphans {
			c.Flags().Duration("timeout", time.Minute, "how long to wait for each answer")
		}
	}
	return command.Group("swarm", "Make swarms that last, step them and look at them, also at those of runs", all...)
}

// swarmClient returns a client of the swarms that a connection reaches. Its timeout is the flag of that
// name, where the command has one.
func swarmClient(cmd *cobra.Command, c *natsq.Conn) (*swarmclient.Client, error) {
	o := swarmclient.Options{Swarms: c.Swarms, Agents: c.Registry, Jobs: c.Queue}
	if cmd.Flags().Lookup("timeout") != nil {
		o.Timeout, _ = cmd.Flags().GetDuration("timeout")
		if o.Timeout <= 0 {
			return nil, command.Usage("--timeout %v: use more than 0", o.Timeout)
		}
	}
	return swarmclient.New(o)
}

// onSwarm makes a command's RunE of a function that needs the swarm that the first argument names.
func onSwarm(fn func(cmd *cobra.Command, s *swarmclient.Swarm) error) func(*cobra.Command, []string) error {
	return connected(func(cmd *cobra.Command, args []string, c *natsq.Conn) error {
		client, err := swarmClient(cmd, c)
		if err != nil {
			return err
		}
		s, err := client.Open(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return fn(cmd, s)
	})
}

func swarmCreate(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	spec, from, err := specOf(cmd, args)
	if err != nil {
		return err
	}
	client, err := swarmClient(cmd, c)
	if err != nil {
		return err
	}
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

// specOf is the spec of a swarm to be made, and what its agents begin as.
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
	if file != "" {
		if spec, err = specfile.Read(file); err != nil {
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
	if len(given) > 0 {
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

func swarmList(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	all, err := c.Swarms.Swarms(cmd.Context())
	if err != nil {
		return err
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "SWARM", "NAME", "ADDRESSED", "CELL", "AGENTS", "GROUPS",
		"SHARDS", "CREATED", "STATE", "ERROR")
	if err != nil {
		return err
	}
	census, err := c.Swarms.Census(cmd.Context())
	if err != nil {
		return err
	}
	for _, s := range all {
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
		agents := int64(s.Swarm.Groups) * int64(spec.AgentsPerGroup)
		shards, served := s.Swarm.ShardCount(), 0
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

func swarmTick(cmd *cobra.Command, s *swarmclient.Swarm) error {
	count, _ := cmd.Flags().GetInt("count")
	if count < 1 {
		return command.Usage("swarm tick: --count %d: use 1 or more", count)
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "CANDIDATE", "AGENTS", "GROUPS")
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
	if err := p.Item(item{"none", nil, t.Undecided}, "none", "", t.Undecided); err != nil {
		return err
	}
	if err := p.End(); err != nil {
		return err
	}
	cmd.PrintErrf("%d ticks, %d steps of agents\n", count, t.Stepped)
	return nil
}

func swarmDelete(cmd *cobra.Command, args []string, c *natsq.Conn) error {
	client, err := swarmClient(cmd, c)
	if err != nil {
		return err
	}
	if err := client.Delete(cmd.Context(), args[0], func() error {
		return confirm(cmd, fmt.Sprintf("delete swarm %s, its log, and the state of all its agents", args[0]))
	}); err != nil {
		return err
	}
	cmd.PrintErrf("swarm %s is deleted\n", args[0])
	return nil
}

// confirm asks before what cannot be undone. Without a terminal to ask at, --yes must say it.
func confirm(cmd *cobra.Command, what string) error {
	if yes, _ := cmd.Flags().GetBool("yes"); yes {
		return nil
	}
	in, is := cmd.InOrStdin().(*os.File)
	if !is || !term.IsTerminal(int(in.Fd())) {
		return command.Usage("%s: this would %s: add --yes", cmd.CommandPath(), what)
	}
	cmd.PrintErrf("This will %s. Go on? [y/N] ", what)
	answer, _ := bufio.NewReader(in).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return command.Usage("%s: not confirmed, nothing is changed", cmd.CommandPath())
	}
	return nil
}

func swarmOrphans(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	all, err := c.Swarms.Orphans(cmd.Context())
	if err != nil {
		return err
	}
	p, err := listing.New(cmd.OutOrStdout(), cmd.Flags(), "SWARM", "JOB", "LOGS", "REASON")
	if err != nil {
		return err
	}
	for _, o := range all {
		if err := p.Item(o, o.Swarm.ID, o.Job, len(o.Logs), o.Reason); err != nil {
			return err
		}
	}
	if err := p.End(); err != nil {
		return err
	}
	if remove, _ := cmd.Flags().GetBool("delete"); !remove {
		return nil
	}
	for _, o := range all {
		if err := c.Swarms.RemoveOrphan(cmd.Context(), o); err != nil {
			return err
		}
	}
	cmd.PrintErrf("%d removed\n", len(all))
	return nil
}
