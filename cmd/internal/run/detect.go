package run

import (
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// Detect returns exoswarm detect. It has no --nats: everything is in this process and in
// --data-dir. lasting are the commands of detectors that outlive their process and their machine,
// with the same specification. They were the commands of exoswarm detector, which still works.
func Detect(lasting []*cobra.Command) *cobra.Command {
	var o detectOptions
	var keys []string
	cmd := cli.Verb{
		Use:   "detect -f swarm.yaml --data-dir DIR < rows > anomalies.ndjson",
		Short: "Find anomalies in a stream of rows, here or on a cluster for good, and keep what was learnt",
		Long: `Detect anomalies in rows as they come, in one process. Rows are CSV or NDJSON from standard input,
or from a file that grows and is rotated (--follow). Anomalies are written as NDJSON when they are
decided. With key: COLUMN in the specification each value of the column is an entity of its own.

DIR keeps the agents, the entities and the positions. The next detect with the same DIR continues
where this one ended. Agents, entities and the position in a file are stored together: kill -9 loses
or doubles no row of a file. A regular file as standard input is read once: the next call continues
behind its last row. A file that was truncated or replaced is read from its start, and a line says
so. A last line without a line end waits for the next call (--take-last-line takes it); of a pipe it
is left out. Of a pipe, rows that this process had read and not stored are lost. A regular file as
output has each decision once; on a pipe the last ones may be written again after kill -9.

--webhook sends anomalies when they are decided, and again after a failure with the same id. While
the receiver is away no decision is written, and no row is lost.

Rows that go back behind the last row of their entity are dropped and counted. Ctrl-C decides what
was read, and ends.

--show-key prints the state of an entity, by its key, as a line of JSON, and reads no rows. No other
detect may use DIR at the time.`,
		Do: cli.Here(func(cmd *cobra.Command, _ []string) error {
			log, err := command.Logger(cmd)
			if err != nil {
				return err
			}
			// Anomalies go to stdout. Messages and the counts at the end go to stderr, so that a
			// pipe gets nothing but NDJSON.
			o.In, o.Out, o.Err, o.Log = cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), log
			if o.Anomalies != "" && !cmd.Flags().Changed("output") {
				o.Output = ""
			}
			if err := checkMaxRejects(o.MaxRejects); err != nil {
				return err
			}
			if len(keys) > 0 {
				if o.DataDir == "" {
					return command.Usage("detect: --data-dir is missing: name the folder of the detector")
				}
				return showEntity(cmd.Context(), o.DataDir, keys, o.Out, log)
			}
			// What is missing is said before anything is opened: a wrong call changes no folder.
			switch {
			case o.SpecFile == "":
				return command.Usage("detect: -f is missing: name a swarm spec, such as examples/telemetry/swarm.yaml")
			case o.DataDir == "":
				return command.Usage("detect: --data-dir is missing: name a folder for the state of the detector")
			}
			return runDetector(cmd.Context(), o)
		}),
	}.Command()
	cmd.Aliases = []string{"detector"}
	cmd.AddCommand(lasting...)
	f := cmd.Flags()
	f.StringVarP(&o.SpecFile, "file", "f", "", "specification of the swarm (required)")
	f.StringVar(
		&o.DataDir,
		"data-dir",
		"",
		"folder of the state between two calls, for one process at a time (required)",
	)
	f.StringVar(&o.Follow, "follow", "", "file that is read as it grows and is rotated; empty: standard input")
	f.StringVar(&o.Output, "output", "-", "file to which decisions are added as NDJSON, or - for standard output")
	f.StringVar(
		&o.Anomalies,
		"anomalies",
		"",
		"file to which incidents are added when they end, one record each: .ndjson, .csv, "+
			"or - for standard output; then --output must be named to have decisions too",
	)
	f.StringVar(&o.Rejects, "rejects", "", "file to which invalid rows are added, as NDJSON; empty: they are counted")
	f.BoolVar(
		&o.TakeLastLine,
		"take-last-line",
		false,
		"take a last line without a line end, in place of waiting for its end",
	)
	maxRejectsFlag(f, &o.MaxRejects)
	f.BoolVar(&o.All, "all", false, "write every decision, not only anomalies")
	f.StringArrayVar(
		&keys,
		"show-key",
		nil,
		"print the state of an entity, as in sensor-17 or site=a,device=7, and read nothing",
	)
	webhookFlags(f, &o.Webhook)
	f.StringArrayVar(&o.CSV, "csv", nil, "KEY=VALUE of the dialect of CSV, in place of csv in the specification")
	command.LogFlags(f)
	// The parts inside log as agents do, which a person who reads anomalies does not want to see.
	command.SetDefault(f, "log-level", "error")
	return cmd
}
