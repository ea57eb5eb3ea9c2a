package main

import (
	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/runinput"
	"github.com/exoswarm/exoswarm/internal/runjob"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -f swarm.yaml --input PATH [PATH ...] --output FILE",
		Short: "Run a swarm over files: one series a file, one decision a row",
		Long: `Run a swarm over files. PATH is a file, or a folder that is read in depth; each file
is a series, named by its path below PATH. The extension says the format: .csv, .ndjson or .jsonl,
.parquet or .pq, .arrow, .arrows or .feather, and all but Parquet may be packed (.csv.gz,
.ndjson.zst). A file named by --input whose extension says nothing is read as CSV. PATH may also be
a FIFO, or - for standard input. Its first bytes say the format. Plain CSV and NDJSON are decided as
they come, when there is no other PATH; everything else is read to its end first. Without --nats
everything runs in this process; with it, the job goes to a cluster.

FILE appears complete or not at all. With -, /dev/stdout, a FIFO or a device, decisions in NDJSON
are written as they are made, in the order of their batches: a reader that is slow slows the run
down, and one that ends, as head does, ends it. A symbolic link is followed. Nothing that is not a
regular file is ever replaced.

Rows that are not valid are skipped and listed with reasons in NAME.rejects.ndjson beside the output
NAME.ndjson, or where
--rejects says.
With --nats the job's id is printed at once. Its output is kept for a day, whatever becomes of this
process: run --attach ID takes the job up again, job output ID fetches what it wrote.

Ctrl-C stops reading, finishes what was read, and writes it; a second Ctrl-C ends at once.`,
		Args: cobra.ArbitraryArgs, // more inputs, as from --input data/*.csv
		RunE: runFromFlags,
	}
	f := cmd.Flags()
	f.StringP("file", "f", "", "the swarm's spec (required)")
	f.StringArray("input", nil, "file or folder, or - for standard input; may be given several times")
	f.String("sources", "", "JSON file with a list of sources that are not files; see docs/sources.md")
	f.StringArray("root", nil, "NAME=DIR: a folder that sources of a run in this process may name")
	f.StringArray("egress", nil, "HOST, HOST:PORT, *.DOMAIN or NETWORK that a run in this process may reach")
	f.String("secrets", "", "folder of the secrets that sources refer to as file:NAME, for a run in this process")
	f.String("webhook", "", "URL that anomalies are sent to as they are found")
	f.String("webhook-secret", "", "env:NAME or file:NAME of the agent: the key that signs what is sent")
	f.String("sinks", "", "JSON file with a list of where decisions go besides, as they are made; see docs/sources.md")
	f.StringArray("csv", nil, "KEY=VALUE of how CSV files are written, over csv in the spec: delimiter, decimal, "+
		"header, names, time, zone; as in --csv 'delimiter=;'")
	f.String("output", "", "file for the decisions, in the format of its extension, or - for standard output in "+
		"NDJSON (required)")
	f.String("rejects", "", "file for the rows that are not valid, as NDJSON; NAME.rejects.ndjson beside the output "+
		"NAME.* when empty")
	f.String("report", "", "file for a report, one HTML page")
	f.String("labels", "", "JSON file with a list of labelled incidents, to compare anomalies with; see Labels in "+
		"docs/sources.md")
	f.Bool("detach", false, "with --nats: submit the job, print its id and end; run --attach ID or job output ID "+
		"fetches its output")
	f.String("attach", "", "with --nats: the id of a run's job; wait for it and write its --output")
	f.Bool("strict", false, "stop at the first row that is not valid")
	command.NATSFlags(f, true)
	patienceFlag(f)
	f.String("data-dir", "", "folder for the streams of a run in this process; a temporary one when empty")
	f.Int("batch-rows", 0, "most rows of a message, 1 to 4096; changes no output")
	f.String("progress", "auto", "auto, plain, json or none")
	command.LogFlags(f)
	command.SetDefault(f, "log-level", "error")
	return cmd
}

// newRun returns the options of a run that uses the streams and the log of a command.
func newRun(cmd *cobra.Command) (runjob.Options, error) {
	log, err := command.Logger(cmd)
	return runjob.Options{
		Command: cmd.Name(), In: cmd.InOrStdin(), Out: cmd.OutOrStdout(), Err: cmd.ErrOrStderr(), Log: log,
	}, err
}

func runFromFlags(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	o, err := newRun(cmd)
	if err != nil {
		return err
	}
	o.SpecFile, _ = f.GetString("file")
	o.Inputs, _ = f.GetStringArray("input")
	o.Inputs = append(o.Inputs, args...)
	o.Sources, _ = f.GetString("sources")
	o.CSV, _ = f.GetStringArray("csv")
	o.Egress, _ = f.GetStringArray("egress")
	roots, _ := f.GetStringArray("root")
	o.Secrets, _ = f.GetString("secrets")
	if hook, _ := f.GetString("webhook"); hook != "" {
		key, _ := f.GetString("webhook-secret")
		o.Webhook = &sink.WebhookSpec{URL: hook, Secret: key}
	}
	if path, _ := f.GetString("sinks"); path != "" {
		if err := runinput.ReadList("--sinks", path, `[{"uri":"sqlite:ROOT/PATH?table=TABLE"}]`, &o.Sinks); err != nil {
			return err
		}
	}
	o.Output, _ = f.GetString("output")
	o.Rejects, _ = f.GetString("rejects")
	o.Report, _ = f.GetString("report")
	o.Labels, _ = f.GetString("labels")
	o.Strict, _ = f.GetBool("strict")
	// --nats "" is this process, whatever the environment says.
	if url, _ := f.GetString("nats"); url != "" || f.Changed("nats-context") && !f.Changed("nats") {
		o.NATS, o.Login = command.NATS(cmd)
	}
	o.Attach, _ = f.GetString("attach")
	o.Detach, _ = f.GetBool("detach")
	if o.Patience, err = patience(cmd); err != nil {
		return err
	}
	o.DataDir, _ = f.GetString("data-dir")
	o.BatchRows, _ = f.GetInt("batch-rows")
	o.Progress, _ = f.GetString("progress")
	if o.Roots, err = files.ParseRoots(roots); err != nil {
		return command.Usage("run: %v", err)
	}
	switch {
	case (o.Detach || o.Attach != "") && !o.OnCluster():
		return command.Usage("run: --detach and --attach are for a job of a cluster: add --nats URL")
	case o.Detach && (o.Attach != "" || o.Report != "" || o.Rejects != "" || o.Labels != ""):
		return command.Usage("run: --detach writes nothing here: leave --attach, --report, --labels and --rejects " +
			"to the run that fetches the output")
	case o.Detach && o.Output == "":
		o.Output = "-" // it says the format alone
	}
	if o.Attach != "" {
		if o.SpecFile != "" || len(o.Inputs) > 0 || o.Sources != "" {
			return command.Usage("run: --attach takes up a job that has its spec and its inputs: leave -f, --input " +
				"and --sources out")
		}
		return runjob.Attach(cmd.Context(), o)
	}
	switch {
	case o.SpecFile == "":
		return command.Usage("run: -f is missing: name a swarm spec, such as examples/telemetry/swarm.yaml")
	case len(o.Inputs) == 0 && o.Sources == "":
		return command.Usage("run: --input is missing: name a file or a folder of them")
	case (len(o.Egress)+len(o.Roots) > 0 || o.Secrets != "") && o.OnCluster():
		return command.Usage("run: --root, --egress and --secrets are those of a run in this process; on a cluster " +
			"they are the CPU agents'")
	case o.Output == "":
		return command.Usage("run: --output is missing: name a file for the decisions")
	case o.BatchRows < 0 || o.BatchRows > 4096:
		return command.Usage("run: --batch-rows %d: use 1 to 4096", o.BatchRows)
	}
	return runjob.Run(cmd.Context(), o)
}
