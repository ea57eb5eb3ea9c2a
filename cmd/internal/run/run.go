// Package run has the commands that run swarms over files, and the commands that judge decisions by
// labels: run, detect, quickstart, eval, report and tune.
package run

import (
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/runjob"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
)

// Command returns exoswarm run. Package runjob does the work; flags of a cluster in this process
// and of one that is reached by --nats exclude each other.
func Command() *cobra.Command {
	var o runjob.Options
	cmd := cli.Verb{
		Use:   "run -f swarm.yaml --input PATH [PATH ...] --output FILE",
		Short: "Find anomalies in files: one series per file, one decision per row",
		Long: `Run a swarm over files. PATH is a file, or a folder that is read with its sub-folders.
Each file is a series, named by its path below PATH. The extension gives the format: .csv, .ndjson
or .jsonl, .parquet or .pq, .arrow, .arrows or .feather. All but Parquet may be packed (.csv.gz,
.ndjson.zst). A file of --input with another extension is read as CSV. PATH may also be a FIFO, or -
for standard input; then the first bytes give the format. Plain CSV and NDJSON from a single stream
are decided row by row as they arrive; other streams are read to their end first. Without --nats
everything runs in this process; with --nats the job runs on a cluster.

FILE appears complete or not at all. With -, /dev/stdout, a FIFO or a device, decisions are NDJSON
and are written when they are made, in the order of their batches. A slow reader slows the run down,
and a reader that ends, as head does, ends the run. Symbolic links are followed. Only regular files
are ever replaced.

Invalid rows are skipped and listed with reasons in NAME.rejects.ndjson beside the output
NAME.ndjson, or in --rejects. If more than a tenth of the rows of a source are invalid
(--max-rejects), the run writes everything and ends with exit code 1 and the most frequent reason.

With --nats the id of the job is printed at once. The cluster keeps its output for a day, also if
this process ends: run --attach ID waits for the job again, job output ID fetches its decisions.

Ctrl-C stops reading, decides the rows that were read, and writes the output. A second Ctrl-C ends
the command at once.`,
		Args: cobra.ArbitraryArgs, // more inputs, as from --input data/*.csv
		Do:   cli.Here(func(cmd *cobra.Command, args []string) error { return runFromFlags(cmd, o, args) }),
	}.Command()
	f := cmd.Flags()
	// What is run, and over which inputs.
	f.StringVarP(&o.SpecFile, "file", "f", "", "specification of the swarm (required)")
	f.StringArrayVar(&o.Inputs, "input", nil, "file or folder, or - for standard input; may be given several times")
	f.StringVar(&o.Sources, "sources", "", "JSON file with a list of sources that are not files; see docs/sources.md")
	// What sources and sinks may reach in this process. On a cluster the CPU agents have these
	// settings, so the flags are refused there.
	f.StringArray("root", nil, "NAME=DIR: a folder that sources may read, for a run in this process")
	f.StringArrayVar(
		&o.Egress,
		"egress",
		nil,
		"HOST, HOST:PORT, *.DOMAIN or NETWORK that sources may reach, for a run in this "+
			"process",
	)
	f.StringVar(
		&o.Secrets,
		"secrets",
		"",
		"folder of the secrets that sources refer to as file:NAME, for a run in this process",
	)
	// Sinks besides --output.
	webhookFlags(f, &sink.WebhookSpec{})
	f.String("sinks", "", "JSON file with a list of further sinks of decisions; see docs/sources.md")
	f.StringArrayVar(
		&o.CSV,
		"csv",
		nil,
		"KEY=VALUE of the dialect of CSV files, in place of csv in the specification: "+
			"delimiter, decimal, header, names, time, zone; as in --csv 'delimiter=;'",
	)
	// Files of the result. Each appears complete or not at all, unless it is a stream.
	f.StringVar(
		&o.Output,
		"output",
		"",
		"file for the decisions, in the format of its extension, or - for standard output in "+
			"NDJSON (required)",
	)
	f.StringVar(
		&o.Anomalies,
		"anomalies",
		"",
		"file for the incidents, one record each: .ndjson, .csv, or - for standard output; then "+
			"--output may be left out",
	)
	f.StringVar(
		&o.Rejects,
		"rejects",
		"",
		"file for invalid rows, as NDJSON; empty: NAME.rejects.ndjson beside the output NAME.*",
	)
	f.StringVar(&o.Report, "report", "", "file for a report, one HTML page")
	f.StringVar(
		&o.Labels,
		"labels",
		"",
		"JSON file with a list of labelled incidents to compare with the anomalies; see Labels in "+
			"docs/sources.md",
	)
	// A job of a cluster outlives this command.
	f.BoolVar(
		&o.Detach,
		"detach",
		false,
		"with --nats: submit the job, print its id and end; fetch its output with run --attach ID "+
			"or job output ID",
	)
	f.StringVar(
		&o.Attach,
		"attach",
		"",
		"with --nats: id of the job of an earlier run, whose output is awaited and written",
	)
	f.BoolVar(&o.Strict, "strict", false, "stop at the first invalid row")
	maxRejectsFlag(f, &o.MaxRejects)
	// The empty URL is a run in this process.
	command.NATSFlags(f, true)
	cli.PatienceFlag(f)
	// The streams of a run in this process, and the size of messages, which changes no output.
	f.StringVar(
		&o.DataDir,
		"data-dir",
		"",
		"folder for the streams of a run in this process; empty: a temporary folder",
	)
	f.IntVar(&o.BatchRows, "batch-rows", 0, "most rows of a message, 1 to 4096; does not change the output")
	f.StringVar(&o.Progress, "progress", "auto", "auto, plain, json or none")
	command.LogFlags(f)
	command.SetDefault(f, "log-level", "error")
	cli.CompleteFlag(cmd, "attach", cli.JobIDs)
	return cmd
}

func maxRejectsFlag(f *pflag.FlagSet, share *float64) {
	f.Float64Var(share, "max-rejects", rows.MaxRejects, "share of the rows of a source, 0 to 1, beyond which rejected "+
		"rows end the command with exit code 1, after all output is written")
}

// checkMaxRejects returns an error of usage if a value of --max-rejects is no share.
func checkMaxRejects(share float64) error {
	if !(share >= 0 && share <= 1) {
		return command.Usage("--max-rejects %v: use a share from 0 to 1", share)
	}
	return nil
}

// setStreams sets the streams and the log of a command in the options of a run.
func setStreams(cmd *cobra.Command, o *runjob.Options) (err error) {
	o.Command, o.In, o.Out, o.Err = cmd.Name(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
	o.Log, err = command.Logger(cmd)
	return err
}

// runFromFlags reads the flags, refuses combinations that contradict each other, and starts a
// run or attaches to one.
//
// --nats with an empty value is a run in this process also when the environment names a server.
// Files are read after all combinations are checked, except --sinks, which is a part of the
// options. args are further inputs, as a shell makes them of a pattern. An error of usage leaves no
// file and no job behind.
func runFromFlags(cmd *cobra.Command, o runjob.Options, args []string) error {
	f := cmd.Flags()
	err := setStreams(cmd, &o)
	if err != nil {
		return err
	}
	o.Inputs = append(o.Inputs, args...)
	roots, _ := f.GetStringArray("root")
	// --webhook is short for a list of one sink.
	if hook, _ := f.GetString("webhook"); hook != "" {
		key, _ := f.GetString("webhook-secret")
		o.Webhook = &sink.WebhookSpec{URL: hook, Secret: key}
	}
	if path, _ := f.GetString("sinks"); path != "" {
		if err := userfile.ReadList("--sinks", path, `[{"uri":"sqlite:ROOT/PATH?table=TABLE"}]`, &o.Sinks); err != nil {
			return err
		}
	}
	if err := checkMaxRejects(o.MaxRejects); err != nil {
		return err
	}
	// --nats "" is this process, whatever the environment says.
	if url, _ := f.GetString("nats"); url != "" || f.Changed("nats-context") && !f.Changed("nats") {
		o.NATS, o.Login = command.NATS(cmd)
	}
	if o.Patience, err = cli.Patience(cmd); err != nil {
		return err
	}
	if o.Roots, err = files.ParseRoots(roots); err != nil {
		return command.Usage("run: %v", err)
	}
	switch {
	case (o.Detach || o.Attach != "") && !o.OnCluster():
		return command.Usage("run: --detach and --attach are for a job of a cluster: add --nats URL")
	// These files would be written by nobody, and the user would wait for them.
	case o.Detach && (o.Attach != "" || o.Report != "" || o.Rejects != "" || o.Labels != ""):
		return command.Usage("run: --detach writes nothing here: leave --attach, --report, --labels and --rejects " +
			"to the run that fetches the output")
	case o.Detach && o.Output == "" && o.Anomalies == "":
		o.Output = "-" // only its format counts
	}
	// --attach needs the files of the output only; the job has everything else.
	if o.Attach != "" {
		if o.SpecFile != "" || len(o.Inputs) > 0 || o.Sources != "" {
			return command.Usage("run: --attach takes up a job that has its spec and its inputs: leave -f, --input " +
				"and --sources out")
		}
		// The job was checked when it was submitted; flags of the specification have no meaning
		// here.
		return runjob.Attach(cmd.Context(), o)
	}
	switch {
	case o.SpecFile == "":
		return command.Usage("run: -f is missing: name a swarm spec, such as examples/telemetry/swarm.yaml")
	case len(o.Inputs) == 0 && o.Sources == "":
		return command.Usage("run: --input is missing: name a file or a folder of them")
	case (len(o.Egress)+len(o.Roots) > 0 || o.Secrets != "") && o.OnCluster():
		return command.Usage("run: --root, --egress and --secrets are for a run in this process; on a cluster " +
			"the CPU agents have them")
	case o.Output == "" && o.Anomalies == "":
		return command.Usage("run: --output is missing: name a file for the decisions")
	case o.BatchRows < 0 || o.BatchRows > 4096:
		return command.Usage("run: --batch-rows %d: use 1 to 4096", o.BatchRows)
	}
	return runjob.Run(cmd.Context(), o)
}

// webhookFlags adds --webhook and --webhook-secret.
func webhookFlags(f *pflag.FlagSet, hook *sink.WebhookSpec) {
	f.StringVar(&hook.URL, "webhook", "", "URL to which anomalies are sent when they are found")
	f.StringVar(&hook.Secret, "webhook-secret", "", "env:NAME, or file:NAME on a CPU agent: the key that signs "+
		"messages to --webhook")
}
