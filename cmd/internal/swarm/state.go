package swarm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/ops/travel"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// stateVerb is exoswarm swarm state: the past of a swarm, by a replay of its log in this process.
var stateVerb = cli.Verb{
	Use: "state NAME --at ENTRY", Short: "Show the state of agents after an entry of the log, or compare two moments",
	Lists: true,
	Long: `Show the state that the agents of a swarm had after an entry of the log of a shard. This
process applies the entries of the log again, on its processor, and gets the same bits as the GPU
agent had. It changes nothing, and needs no GPU agent.

Without a group it shows the mean, the least and the largest value of each variable of the shard.
With --group or --key it shows the variables of that group and of its agents (docs/cells.md). With
--and it shows what differs at a second moment.

The replay begins with the latest snapshot before the entry that --snapshots has, else with the
first entry of the log. A log that was trimmed needs --snapshots.`,
	Flags: func(f *pflag.FlagSet) {
		f.Uint64("at", 0, "number of the entry after which the state is shown, from 1 (required)")
		f.Uint64("and", 0, "number of the entry of a second moment")
		f.Int("shard", 0, "number of the shard; with --group the shard of the group")
		f.Int("group", -1, "number of a group")
		f.String("key", "", "key of an entity, or name of a series of a run, in place of --group")
		f.Int("agents", 100, "number of agents of the group that are shown, up to 1000")
		f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as for gpuagent "+
			"--snapshots")
		models.KeyFileFlag(f)
		f.Int64("memory", travel.DefaultMaxBytes>>20, "most MiB of state of the shard")
		timeoutFlag(f)
	},
	Do: cli.Queue(swarmState),
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
	// The name is looked up once. The replay uses the id, so that a swarm of the same name that is
	// made meanwhile is not mistaken for this one.
	s, err := openSwarm(cmd, c, args[0])
	if err != nil {
		return err
	}
	q.Swarm = s.Record().ID
	o := travel.Options{Conn: c, MaxBytes: memory << 20}
	if place, _ := f.GetString("snapshots"); place != "" {
		b, err := models.OpenBucket(cmd, place)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		files := bucket.FilesOf(b, "")
		defer func() { err = errors.Join(err, files.Close()) }()
		o.Snapshots, o.Models = b, files
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
		"--timeout more, or take snapshots with exoswarm snapshot create", timeout))
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
	var rows []cli.Row
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
		rows = append(rows, cli.NewRow(item, row...))
	}
	return cli.PrintRows(cmd, columns, rows...)
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
	var rows []cli.Row
	// add adds the group (row 0 of its variables) or an agent. JSON has the state at the second
	// moment under "and"; a row without a difference is left out.
	add := func(what string, id int64, row int) {
		at, text := momentRow(v.Group, what, row, false, two)
		item := map[string]any{what: id, "state": at}
		cells := []any{fmt.Sprintf("%s %d", what, id), text}
		if two {
			and, then := momentRow(v.Group, what, row, true, two)
			if len(and) == 0 {
				return
			}
			item["and"], cells = and, append(cells, then)
		}
		rows = append(rows, cli.NewRow(item, cells...))
	}
	add("group", int64(v.Group.Group), 0)
	// Agents of a group have successive numbers in the swarm.
	for i := range v.Group.Agents {
		add("agent", v.Group.FirstAgent+int64(i), i)
	}
	return cli.PrintRows(cmd, columns, rows...)
}

// momentRow returns the variables of an agent or of a group, as entities.Row does: with and at the
// second moment, and with changed only variables that differ.
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
		shown := listText(values)
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
