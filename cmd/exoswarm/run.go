package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"sort"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
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

// runOptions are a run's settings, from flags or from the quick start.
type runOptions struct {
	specFile string
	inputs   []string
	sources  string
	csv      []string // settings of the dialect of CSV files, over those of the spec
	roots    map[files.Root]string
	egress   []string
	secrets  string
	webhook  *sink.WebhookSpec
	sinks    []sink.Spec
	output   string
	rejects  string      // empty: beside the output
	format   rows.Format // of the output
	report   string
	labels   string
	strict   bool
	nats     string // with login: a cluster; both empty run everything in this process
	login    natsconn.Login
	patience time.Duration // with the server of a cluster
	dataDir  string
	batch    int
	progress string
	attach   string // the job whose output is wanted
	detach   bool   // submit and end
	live     bool   // rows are sent here as they are decided
	log      *slog.Logger
}

// cluster reports whether the run is a job of a cluster.
func (o *runOptions) cluster() bool { return o.nats != "" || o.login.Context != "" }

func runFromFlags(cmd *cobra.Command, args []string) error {
	f := cmd.Flags()
	o := runOptions{}
	var err error
	o.specFile, _ = f.GetString("file")
	o.inputs, _ = f.GetStringArray("input")
	o.inputs = append(o.inputs, args...)
	o.sources, _ = f.GetString("sources")
	o.csv, _ = f.GetStringArray("csv")
	o.egress, _ = f.GetStringArray("egress")
	roots, _ := f.GetStringArray("root")
	o.secrets, _ = f.GetString("secrets")
	if hook, _ := f.GetString("webhook"); hook != "" {
		key, _ := f.GetString("webhook-secret")
		o.webhook = &sink.WebhookSpec{URL: hook, Secret: key}
	}
	if path, _ := f.GetString("sinks"); path != "" {
		if err := readList("--sinks", path, `[{"uri":"sqlite:ROOT/PATH?table=TABLE"}]`, &o.sinks); err != nil {
			return err
		}
	}
	o.output, _ = f.GetString("output")
	o.rejects, _ = f.GetString("rejects")
	o.report, _ = f.GetString("report")
	o.labels, _ = f.GetString("labels")
	o.strict, _ = f.GetBool("strict")
	// --nats "" is this process, whatever the environment says.
	if url, _ := f.GetString("nats"); url != "" || f.Changed("nats-context") && !f.Changed("nats") {
		o.nats, o.login = command.NATS(cmd)
	}
	o.attach, _ = f.GetString("attach")
	o.detach, _ = f.GetBool("detach")
	if o.patience, err = patience(cmd); err != nil {
		return err
	}
	o.dataDir, _ = f.GetString("data-dir")
	o.batch, _ = f.GetInt("batch-rows")
	o.progress, _ = f.GetString("progress")
	if o.log, err = command.Logger(cmd); err != nil {
		return err
	}
	if o.roots, err = files.ParseRoots(roots); err != nil {
		return command.Usage("run: %v", err)
	}
	switch {
	case (o.detach || o.attach != "") && !o.cluster():
		return command.Usage("run: --detach and --attach are for a job of a cluster: add --nats URL")
	case o.detach && (o.attach != "" || o.report != "" || o.rejects != "" || o.labels != ""):
		return command.Usage("run: --detach writes nothing here: leave --attach, --report, --labels and --rejects " +
			"to the run that fetches the output")
	case o.detach && o.output == "":
		o.output = "-" // it says the format alone
	}
	if o.attach != "" {
		if o.specFile != "" || len(o.inputs) > 0 || o.sources != "" {
			return command.Usage("run: --attach takes up a job that has its spec and its inputs: leave -f, --input " +
				"and --sources out")
		}
		return attach(cmd, o)
	}
	switch {
	case o.specFile == "":
		return command.Usage("run: -f is missing: name a swarm spec, such as examples/telemetry/swarm.yaml")
	case len(o.inputs) == 0 && o.sources == "":
		return command.Usage("run: --input is missing: name a file or a folder of them")
	case (len(o.egress)+len(o.roots) > 0 || o.secrets != "") && (o.nats != "" || o.login.Context != ""):
		return command.Usage("run: --root, --egress and --secrets are those of a run in this process; on a cluster " +
			"they are the CPU agents'")
	case o.output == "":
		return command.Usage("run: --output is missing: name a file for the decisions")
	case o.batch < 0 || o.batch > 4096:
		return command.Usage("run: --batch-rows %d: use 1 to 4096", o.batch)
	}
	return run(cmd, o)
}

// run is the whole of a run: input, job, wait, output, table.
func run(cmd *cobra.Command, o runOptions) (err error) {
	ctx := cmd.Context()
	spec, err := readSpec(o.specFile)
	if err != nil {
		return err
	}
	if spec.ByAgent() {
		return command.Usage("run: %s addresses agents, and files are for groups: make it with exoswarm swarm create",
			o.specFile)
	}
	if err := setCSV(&spec.CSV, o.csv); err != nil {
		return err
	}
	dest, err := newDestination(o.output, o.rejects, o.report)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dest.close(); err == nil {
			err = cerr
		}
	}()
	if err := dest.readLabels(o.labels); err != nil {
		return err
	}
	if dest.usesStdout() {
		signal.Ignore(syscall.SIGPIPE) // a reader that goes away must leave no temporary files behind
	}
	stdin := cmd.InOrStdin()
	var flow *liveInput
	if !o.detach { // nobody would send it
		if flow, stdin, err = openLiveInput(ctx, o.inputs, stdin, spec.CSV); err != nil {
			return err
		}
		defer func() {
			if cerr := flow.close(); err == nil && cerr != nil {
				err = fmt.Errorf("read %s: %w", flow.name, cerr)
			}
		}()
		if flow != nil {
			o.inputs = nil
		}
	}
	given, err := spool(ctx, o.inputs, stdin)
	defer func() {
		if cerr := given.close(); err == nil {
			err = cerr
		}
	}()
	if err != nil {
		return err
	}
	if given.interrupted { // its end is the end of the input
		ctx = context.WithoutCancel(ctx)
	}
	inputs, err := findInputs(given.paths, dest.files()...)
	if err != nil {
		return err
	}
	others, err := readSources(o.sources, inputs)
	if err != nil {
		return err
	}
	if flow != nil {
		for _, s := range others {
			if s.Name == flow.source.Name {
				return command.Usage("--sources %s: a source is called %s as the input is: rename it", o.sources,
					s.Name)
			}
		}
		others = append(others, flow.source)
	}
	if n := len(inputs) + len(others); spec.GroupCount != 0 && spec.GroupCount != n {
		return command.Usage("run: %s has groups: %d, and the input %d series, a group each: leave groups out for a "+
			"run, or make the swarm with exoswarm swarm create", o.specFile, spec.GroupCount, n)
	}
	spec.GroupCount = 0 // that tells the swarm of a run from one that lasts
	o.format = dest.format
	if err := dest.labelsOf(inputs, others); err != nil {
		return err
	}
	show, err := newProgress(o.progress, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	tracing, err := newTracing(cmd)
	if err != nil {
		return err
	}
	defer tracing.Close()
	ctx = tracing.Context(ctx)
	id := natsconn.NewID()
	var conn *natsq.Conn
	var carrier carrier
	// Starting and ending are short; only the work itself answers to Ctrl-C by finishing early.
	base := context.WithoutCancel(ctx)
	if !o.cluster() {
		roots, local := localRoots(inputs, dest)
		for name, dir := range o.roots {
			if roots[name] != "" {
				return command.Usage("run: --root %s: the run itself has a folder of that name: choose another",
					name.Name)
			}
			roots[name] = dir
		}
		var e *embedded
		if e, err = startEmbedded(base, embeddedOptions{
			dataDir: o.dataDir, roots: roots, egress: o.egress,
			secrets: o.secrets, log: o.log, tracing: tracing.Provider(),
		}); err != nil {
			return err
		}
		defer func() {
			if cerr := e.close(); err == nil {
				err = cerr
			}
		}()
		conn, carrier = e.conn, local
		ended := make(chan struct{})
		var watch sync.WaitGroup
		watch.Add(1)
		go func() {
			defer watch.Done()
			select {
			case <-e.full:
				e.abort()
			case <-ended:
			}
		}()
		defer func() {
			close(ended)
			watch.Wait()
			select {
			case <-e.full: // whatever failed, this is why
				err = jobs.Errorf(jobs.CodeIO, "no space left on the disk of the streams, %s: free some or name "+
					"another folder with --data-dir", e.dir)
			default:
			}
		}()
	} else {
		if conn, err = natsq.Connect(ctx, natsconn.Options{
			URL: o.nats, Login: o.login, Name: "exoswarm run",
			Tracing: tracing.Provider(), GiveUp: o.patience,
		}); err != nil {
			return err
		}
		defer conn.Close()
		defer func() { err = conn.LostError(err) }()
		var stop context.CancelFunc
		base, stop = attached(base, conn)
		defer stop()
		carrier = &objectCarrier{conn: conn, id: id}
	}
	over := true // nothing of the job is needed any more
	defer func() {
		if !over {
			return
		}
		last, cancel := context.WithTimeout(base, cleanupLimit)
		defer cancel()
		if cerr := carrier.cleanup(last); cerr != nil {
			o.log.Warn("cleaning up; the CPU agents remove what is left", "error", cerr)
		}
	}()
	if o.live = dest.streams() && !o.detach; o.live {
		dest.goLive(ctx, cmd.OutOrStdout(), func() {
			// Nobody reads what is to come. A job that is over cannot be cancelled, and needs not.
			_ = conn.Queue.Cancel(base, jobs.Job{ID: id, Pool: jobs.PoolCPU}, true)
		})
		defer dest.live.end()
	}
	if o.live || flow != nil {
		stop, err := conn.Results.Rows(id, func(message []byte) []byte {
			if n, ok := source.ParseInputRequest(message); ok && flow != nil {
				return flow.answer(n)
			}
			if dest.live == nil {
				return []byte(sink.RowsStop)
			}
			return dest.live.take(message)
		})
		if err != nil {
			return err
		}
		defer stop()
	}
	job, err := makeJob(ctx, conn, carrier, id, spec, inputs, others, o)
	if err != nil {
		return err
	}
	if o.cluster() {
		show.job(id, o.detach)
	}
	if o.detach {
		over = false
		_, err := fmt.Fprintln(cmd.OutOrStdout(), id)
		return err
	}
	result, err := await(ctx, base, conn, job, show, true)
	if err != nil {
		over = !errors.Is(err, errNotOver)
		return dest.explain(err)
	}
	if given.interrupted {
		result.Interrupted = true
	}
	return finish(cmd, conn, carrier, id, recordOf(spec, o.format), result, dest, show)
}

// runRecord is what a run leaves on the queue for those who fetch its output. It goes with the
// output.
type runRecord struct {
	Name    string      `json:"name"`
	Anomaly string      `json:"anomaly"`
	Columns []string    `json:"columns"` // of the features
	Format  rows.Format `json:"format"`
}

func recordOf(spec *swarm.Spec, format rows.Format) runRecord {
	of := cpuagents.StreamSpec{Candidates: spec.Vote.Candidates, Columns: rows.ColumnSpec{Features: spec.Features}}
	return runRecord{
		Name: spec.Name, Anomaly: spec.Vote.Candidates[len(spec.Vote.Candidates)-1],
		Columns: of.FeatureColumns(), Format: format,
	}
}

// finish puts the output of a job that is done where the user wants it, and ends with the table.
func finish(cmd *cobra.Command, conn *natsq.Conn, carrier carrier, id string, rec runRecord,
	result *cpuagents.StreamResult, dest *destination, show *progress,
) error {
	base := context.WithoutCancel(cmd.Context())
	if dest.live != nil {
		if gone, err := dest.live.failed(); err != nil && !gone {
			return fmt.Errorf("write %s: %w", dest.output.name, err)
		} else if gone {
			cmd.PrintErrf("%s was closed by its reader: the run ended early, after %d decisions\n", dest.output.title(),
				result.Decisions)
			return nil
		}
	}
	if err := carrier.collect(base, dest); err != nil {
		return err
	}
	var series []cpuagents.SeriesSummary
	if err := getJSON(base, conn, "summary-"+id, &series); err != nil {
		return err
	}
	h := report.Header{Title: rec.Name, Anomaly: rec.Anomaly, Features: rec.Columns, Result: *result}
	var err error
	if h.Labels, err = dest.compare(rec.Anomaly); err != nil {
		return err
	}
	if err := dest.deliver(cmd.Context(), cmd.OutOrStdout(), h, series); err != nil {
		return err
	}
	table := cmd.OutOrStdout()
	if dest.usesStdout() {
		table = cmd.ErrOrStderr()
	}
	printTable(table, result, series, dest, h.Labels)
	show.outcome(h.Labels)
	if result.Interrupted {
		return command.ErrInterrupted
	}
	return nil
}

// makeJob hands the inputs to the carrier and submits the job.
func makeJob(ctx context.Context, conn *natsq.Conn, carrier carrier, id string, spec *swarm.Spec, inputs []input,
	others []source.Series, o runOptions,
) (jobs.Job, error) {
	manifest := make([]source.Series, len(inputs))
	for i, in := range inputs {
		uri, err := carrier.source(ctx, i, in)
		if err != nil {
			return jobs.Job{}, err
		}
		manifest[i] = source.Series{Name: in.Name, URI: uri, Format: in.Format}
	}
	manifest = append(manifest, others...)
	sort.SliceStable(manifest, func(i, j int) bool { return manifest[i].Name < manifest[j].Name })
	if err := putJSON(ctx, conn, "manifest-"+id, id, manifest); err != nil {
		return jobs.Job{}, err
	}
	if err := putJSON(ctx, conn, "run-"+id, id, recordOf(spec, o.format)); err != nil {
		return jobs.Job{}, err
	}
	specJSON, err := json.Marshal(spec)
	if err != nil {
		return jobs.Job{}, fmt.Errorf("encode the spec: %w", err)
	}
	columns := rows.ColumnSpec{
		Timestamp: spec.Timestamp, Features: spec.Features,
		AnyOrder: spec.Observations.Late != swarm.Reject,
	}
	if !spec.CSV.IsZero() {
		columns.CSV = &spec.CSV
	}
	output, rejects := carrier.sinks()
	streamJSON, err := json.Marshal(cpuagents.StreamSpec{
		Name: spec.Name, Spec: specJSON, Candidates: spec.Vote.Candidates,
		Columns:  columns,
		Drops:    spec.Observations.Drops(),
		Manifest: "object:manifest-" + id, Output: output, Rejects: rejects, Summary: "object:summary-" + id,
		BatchRows: o.batch, Strict: o.strict, OutputFormat: o.format, Webhook: o.webhook, Sinks: o.sinks, Live: o.live,
	})
	if err != nil {
		return jobs.Job{}, fmt.Errorf("encode the job: %w", err)
	}
	job := jobs.Job{
		Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: cpuagents.KindStream, Spec: streamJSON,
		Submitted: time.Now().UTC(),
	}
	return job, conn.Queue.Submit(ctx, job)
}

// cleanupLimit bounds the whole of a run's clean-up, so that Ctrl-C ends a run within 5 s whatever
// the server does.
const cleanupLimit = 3 * time.Second
