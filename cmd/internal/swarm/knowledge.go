package swarm

import (
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// printKnowledge prints knowledge nodes by their numbers, one item for each.
//
// Fields: node, updates, age, which is null of a node that was never updated, and units.
func printKnowledge(cmd *cobra.Command, s *swarmclient.Swarm, nodes []uint32) error {
	all, err := s.Knowledge(cmd.Context(), nodes)
	if err != nil {
		return err
	}
	var rows []cli.Row
	for i, node := range all.Node {
		units, age, text := all.Units[i*all.Width:][:all.Width], any(nil), "never"
		if all.Age[i] != batch.NeverUpdated {
			age, text = all.Age[i], strconv.FormatUint(all.Age[i], 10)
		}
		item := map[string]any{"node": node, "updates": all.Updates[i], "age": age, "units": units}
		rows = append(rows, cli.NewRow(item, node, all.Updates[i], text, listText(units)))
	}
	return cli.PrintRows(cmd, []string{"NODE", "UPDATES", "AGE", "UNITS"}, rows...)
}

// learnVerb is exoswarm swarm learn, for swarms whose agents hear knowledge nodes.
var learnVerb = cli.Verb{
	Use:   "learn NAME --node N --values V,... | learn NAME --input FILE",
	Short: "Merge values into knowledge nodes, which agents then hear", Lists: true,
	Long: `Merge values into knowledge nodes of a swarm whose agents hear them (hear: [knowledge]).
Each node gets as many values as it has units, from -1 to 1.

Values merge as the specification says: a mean becomes the mean of the node and the values, an ema
moves to them by its rate, and a max becomes the larger of each. With --set they replace the node.
A node that was never updated takes them too.

The next tick has agents hear the node as it is then. Later ticks update it by the agents again, so a
mean or max keeps what it has learned for one tick, and an ema a part of it for longer.

--input is a file of many nodes: CSV with the columns node, unit0, unit1 and so on, or JSON lines
(.ndjson, .jsonl). A file that is not valid changes nothing. A large file takes several entries of
the log.`,
	Flags: func(f *pflag.FlagSet) {
		f.Int64("node", -1, "number of the node")
		f.StringSlice("values", nil, "values of its units, as in 0.1,0.2")
		f.String("input", "", "file of nodes and values, or - for standard input")
		f.Bool("set", false, "replace nodes by the values")
		timeoutFlag(f)
	},
	Do: onSwarm(learn),
}

// learn merges the values of a command line, or of a file, into knowledge nodes.
//
// Fields: nodes and entries, which are how many.
func learn(cmd *cobra.Command, s *swarmclient.Swarm) error {
	if s.Spec().Knowledge.Units == 0 {
		return command.Usage("swarm learn: swarm %s has no knowledge nodes: write hear: [knowledge] in its "+
			"specification", s.ID())
	}
	l, err := lessons(cmd, s)
	if err != nil {
		return err
	}
	l.Replace, _ = cmd.Flags().GetBool("set")
	entries, err := s.Learn(cmd.Context(), l)
	if err != nil {
		return err
	}
	return cli.PrintOne(cmd, []string{"NODES", "ENTRIES"}, map[string]any{"nodes": len(l.Nodes), "entries": entries},
		len(l.Nodes), entries)
}

// lessons returns the nodes and values that a command line names.
func lessons(cmd *cobra.Command, s *swarmclient.Swarm) (l swarms.Learn, err error) {
	path, _ := cmd.Flags().GetString("input")
	node, _ := cmd.Flags().GetInt64("node")
	values, _ := cmd.Flags().GetStringSlice("values")
	one := cmd.Flags().Changed("node") || cmd.Flags().Changed("values")
	if one == (path != "") {
		return l, command.Usage("swarm learn: use --node with --values, or --input with a file of the columns %s",
			strings.Join(userfile.LessonColumns(s.Spec()), ", "))
	}
	if one {
		return lesson(s, node, values)
	}
	given, err := userfile.Spool(cmd.Context(), []string{path}, cmd.InOrStdin())
	// given may be incomplete after an error, and is closed all the same.
	defer func() { _ = given.Close() }()
	switch {
	case err != nil:
		return l, err
	case given.Interrupted: // half of a file is none
		return l, command.ErrInterrupted
	}
	if l, err = userfile.ReadLessons(given.Paths[0], s.Spec()); err == nil && len(l.Nodes) == 0 {
		err = command.Usage("swarm learn: --input %s: it has no rows", path)
	}
	return l, err
}

func lesson(s *swarmclient.Swarm, node int64, values []string) (l swarms.Learn, err error) {
	nodes, units := int64(s.Spec().KnowledgeNodes()), s.Spec().Knowledge.Units
	if node < 0 || node >= nodes {
		return l, command.Usage("swarm learn: --node %d: use 0 to %d", node, nodes-1)
	}
	if len(values) != units {
		return l, command.Usage("swarm learn: --values: %d values: a node has %d units: use one value for each",
			len(values), units)
	}
	l.Nodes = []uint32{uint32(node)}
	for i, text := range values {
		v, err := dialect.Float(strings.TrimSpace(text), 32)
		if err != nil || !(math.Abs(v) <= 1) {
			return l, command.Usage("swarm learn: --values: value %d, %q: use a number from -1 to 1, which units hold",
				i+1, text)
		}
		l.Values = append(l.Values, float32(v))
	}
	return l, nil
}
