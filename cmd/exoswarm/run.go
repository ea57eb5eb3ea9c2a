package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

func runCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run -f swarm.yaml --input PATH [--input PATH ...] --output FILE",
		Short: "Run a swarm over files: one series a file, one decision a row",
		Long: `Run a swarm over files. PATH is a file, or a folder that is read in depth; each file is a series, named by its path
below PATH. The extension says the format: .csv, .ndjson or .jsonl, .parquet or .pq, .arrow, .arrows or .feather, and all but
Parquet may be packed (.csv.gz, .ndjson.zst). A file named by --input whose extension says nothing is read as CSV.
Without --nats everything runs in this process; with it, the job goes to a cluster.

Rows that are not valid are skipped and listed with reasons in rejects.ndjson beside the output.
Ctrl-C stops reading, finishes what was read, and writes it; a second Ctrl-C ends at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runFromFlags(cmd) },
	}
	f := cmd.Flags()
	f.StringP("file", "f", "", "the swarm's spec (required)")
	f.StringArray("input", nil, "file or folder; may be given several times")
	f.String("sources", "", "JSON file with a list of sources that are not files; see docs/sources.md")
	f.StringArray("root", nil, "NAME=DIR: a folder that sources of a run in this process may name")
	f.StringArray("egress", nil, "HOST, HOST:PORT, *.DOMAIN or NETWORK that a run in this process may reach")
	f.String("secrets", "", "folder of the secrets that sources refer to as file:NAME, for a run in this process")
	f.String("webhook", "", "URL that anomalies are sent to as they are found")
	f.String("webhook-secret", "", "env:NAME or file:NAME of the agent: the key that signs what is sent")
	f.String("sinks", "", "JSON file with a list of where decisions go besides, as they are made; see docs/sources.md")
	f.String("output", "", "file for the decisions, in the format of its extension, NDJSON when that says nothing (required)")
	f.String("report", "", "file for a report, one HTML page")
	f.Bool("strict", false, "stop at the first row that is not valid")
	command.NATSFlags(f, true)
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
	roots    map[string]string
	egress   []string
	secrets  string
	webhook  *cpuagents.WebhookSpec
	sinks    []cpuagents.SinkSpec
	output   string
	report   string
	strict   bool
	nats     string // with login: a cluster; both empty run everything in this process
	login    natsq.Login
	dataDir  string
	batch    int
	progress string
	log      *slog.Logger
}

func runFromFlags(cmd *cobra.Command) error {
	f := cmd.Flags()
	o := runOptions{}
	o.specFile, _ = f.GetString("file")
	o.inputs, _ = f.GetStringArray("input")
	o.sources, _ = f.GetString("sources")
	o.egress, _ = f.GetStringArray("egress")
	roots, _ := f.GetStringArray("root")
	o.secrets, _ = f.GetString("secrets")
	if hook, _ := f.GetString("webhook"); hook != "" {
		key, _ := f.GetString("webhook-secret")
		o.webhook = &cpuagents.WebhookSpec{URL: hook, Secret: key}
	}
	if path, _ := f.GetString("sinks"); path != "" {
		if err := readList("--sinks", path, `[{"uri":"sqlite:ROOT/PATH?table=TABLE"}]`, &o.sinks); err != nil {
			return err
		}
	}
	o.output, _ = f.GetString("output")
	o.report, _ = f.GetString("report")
	o.strict, _ = f.GetBool("strict")
	if f.Changed("nats") || f.Changed("nats-context") {
		o.nats, o.login = command.NATS(cmd)
	}
	o.dataDir, _ = f.GetString("data-dir")
	o.batch, _ = f.GetInt("batch-rows")
	o.progress, _ = f.GetString("progress")
	var err error
	if o.log, err = command.Logger(cmd); err != nil {
		return err
	}
	if o.roots, err = cpuagents.ParseRoots(roots); err != nil {
		return command.Usage("run: %v", err)
	}
	switch {
	case o.specFile == "":
		return command.Usage("run: -f is missing: name a swarm spec, such as examples/telemetry/swarm.yaml")
	case len(o.inputs) == 0 && o.sources == "":
		return command.Usage("run: --input is missing: name a file or a folder of them")
	case (len(o.egress)+len(o.roots) > 0 || o.secrets != "") && (o.nats != "" || o.login.Context != ""):
		return command.Usage("run: --root, --egress and --secrets are those of a run in this process; on a cluster they are the CPU agents'")
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
		return command.Usage("run: %s addresses agents, and files are for groups: make it with exoswarm swarm create", o.specFile)
	}
	inputs, err := findInputs(o.inputs, o.output, filepath.Join(filepath.Dir(o.output), rejectsName))
	if err != nil {
		return err
	}
	others, err := readSources(o.sources, inputs)
	if err != nil {
		return err
	}
	if n := len(inputs) + len(others); spec.GroupCount != 0 && spec.GroupCount != n {
		return command.Usage("run: %s has groups: %d, and the input %d series, a group each: leave groups out for a run, or make the swarm with exoswarm swarm create", o.specFile, spec.GroupCount, n)
	}
	spec.GroupCount = 0 // that tells the swarm of a run from one that lasts
	dest, err := newDestination(o.output, o.report)
	if err != nil {
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
	id := natsq.NewID()
	var conn *natsq.Conn
	var carrier carrier
	// Starting and ending are short; only the work itself answers to Ctrl-C by finishing early.
	base := context.WithoutCancel(ctx)
	if o.nats == "" && o.login.Context == "" {
		roots, local := localRoots(inputs, dest)
		for name, dir := range o.roots {
			if roots[name] != "" {
				return command.Usage("run: --root %s: the run itself has a folder of that name: choose another", name)
			}
			roots[name] = dir
		}
		var e *embedded
		if e, err = startEmbedded(base, embeddedOptions{dataDir: o.dataDir, roots: roots, egress: o.egress, secrets: o.secrets, log: o.log, tracing: tracing.Provider()}); err != nil {
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
				err = jobs.Errorf(jobs.CodeIO, "no space left on the disk of the streams, %s: free some or name another folder with --data-dir", e.dir)
			default:
			}
		}()
	} else {
		if conn, err = natsq.Connect(base, natsq.Options{URL: o.nats, Login: o.login, Name: "exoswarm run", Tracing: tracing.Provider()}); err != nil {
			return err
		}
		defer conn.Close()
		carrier = &objectCarrier{conn: conn, id: id}
	}
	defer func() {
		if cerr := carrier.cleanup(base); cerr != nil {
			o.log.Warn("cleaning up", "error", cerr)
		}
	}()
	job, err := makeJob(ctx, conn, carrier, id, spec, inputs, others, o)
	if err != nil {
		return err
	}
	result, err := await(ctx, conn, job, show)
	if err != nil {
		return err
	}
	if err := carrier.collect(base, dest); err != nil {
		return err
	}
	var series []cpuagents.SeriesSummary
	if err := getJSON(base, conn, "summary-"+id, &series); err != nil {
		return err
	}
	if o.report != "" {
		if err := writeReport(dest, spec, result, series); err != nil {
			return err
		}
	}
	printTable(cmd.OutOrStdout(), result, series, dest)
	if result.Interrupted {
		return command.ErrInterrupted
	}
	return nil
}

// input is one file of the input and the --input it came from.
type input struct {
	cpuagents.Found
	from int
}

// findInputs lists the series of all inputs by name. What the run itself writes is not one of them: a run whose output stands
// in the folder that it reads would read its own decisions the next time.
func findInputs(paths []string, outputs ...string) ([]input, error) {
	own := map[string]bool{}
	for _, p := range outputs {
		if abs, err := filepath.Abs(p); err == nil && p != "" {
			own[abs] = true
		}
	}
	var all []input
	for i, p := range paths {
		files, err := cpuagents.Walk(p)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if abs, err := filepath.Abs(f.Path); err == nil && own[abs] {
				continue
			}
			all = append(all, input{f, i})
		}
	}
	if len(all) == 0 && len(paths) > 0 {
		return nil, command.Usage("input: there is nothing to read but what the run is to write: name another --output")
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	for i := 1; i < len(all); i++ {
		if all[i].Name == all[i-1].Name {
			return nil, command.Usage("input: two files are called %s: %s and %s: run them apart, or name a folder above both", all[i].Name, all[i-1].Path, all[i].Path)
		}
	}
	return all, nil
}

// readSources reads a list of sources that are not files of this machine.
func readSources(path string, inputs []input) (list []cpuagents.SeriesSource, err error) {
	if path == "" {
		return nil, nil
	}
	if err := readList("--sources", path, `[{"name":"NAME","uri":"https://HOST/PATH"}]`, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, in := range inputs {
		names[in.Name] = true
	}
	for i, s := range list {
		if s.Name == "" || s.URI == "" || names[s.Name] {
			return nil, command.Usage("--sources %s: source %d, %q: it must have a uri, and a name that nothing else has", path, i+1, s.Name)
		}
		names[s.Name] = true
	}
	return list, nil
}

// readList reads a JSON list that a flag names; form says how one is written.
func readList(flag, path, form string, list any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return command.Usage("%s: %v", flag, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(list); err != nil {
		return command.Usage("%s %s: %v: write %s", flag, path, err, form)
	}
	return nil
}

// makeJob hands the inputs to the carrier and submits the job.
func makeJob(ctx context.Context, conn *natsq.Conn, carrier carrier, id string, spec *swarm.Spec, inputs []input, others []cpuagents.SeriesSource, o runOptions) (jobs.Job, error) {
	manifest := make([]cpuagents.SeriesSource, len(inputs))
	for i, in := range inputs {
		uri, err := carrier.source(ctx, i, in)
		if err != nil {
			return jobs.Job{}, err
		}
		manifest[i] = cpuagents.SeriesSource{Name: in.Name, URI: uri, Format: in.Format}
	}
	manifest = append(manifest, others...)
	sort.SliceStable(manifest, func(i, j int) bool { return manifest[i].Name < manifest[j].Name })
	if err := putJSON(ctx, conn, "manifest-"+id, manifest); err != nil {
		return jobs.Job{}, err
	}
	specJSON, err := json.Marshal(spec)
	if err != nil {
		return jobs.Job{}, fmt.Errorf("encode the spec: %w", err)
	}
	output, rejects := carrier.sinks()
	format, _ := cpuagents.FormatOf(o.output, "ndjson")
	streamJSON, err := json.Marshal(cpuagents.StreamSpec{
		Name: spec.Name, Spec: specJSON, Candidates: spec.Vote.Candidates,
		Columns:  cpuagents.ColumnSpec{Timestamp: spec.Timestamp, Features: spec.Features, AnyOrder: spec.Observations.Late != swarm.Reject},
		Drops:    spec.Observations.Drops(),
		Manifest: "object:manifest-" + id, Output: output, Rejects: rejects, Summary: "object:summary-" + id,
		BatchRows: o.batch, Strict: o.strict, OutputFormat: format, Webhook: o.webhook, Sinks: o.sinks,
	})
	if err != nil {
		return jobs.Job{}, fmt.Errorf("encode the job: %w", err)
	}
	job := jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: cpuagents.KindStream, Spec: streamJSON, Submitted: time.Now().UTC()}
	return job, conn.Submit(ctx, job)
}

// pickup is how long a job may wait for an agent to start on it.
const pickup = 30 * time.Second

// await waits for the job's result and shows its progress. When ctx ends, the job is asked to finish early and the wait
// goes on.
func await(ctx context.Context, conn *natsq.Conn, job jobs.Job, show *progress) (*cpuagents.StreamResult, error) {
	base := context.WithoutCancel(ctx)
	wait, cancel := context.WithCancelCause(base)
	defer cancel(nil)
	started := make(chan struct{})
	first := true
	stop, err := conn.Progress(job.ID, func(data json.RawMessage) {
		var p cpuagents.StreamProgress
		if json.Unmarshal(data, &p) != nil {
			return
		}
		if first {
			first = false
			close(started)
		}
		show.update(p)
	})
	if err != nil {
		return nil, err
	}
	defer stop()
	over := make(chan struct{})
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		slow := time.NewTimer(pickup)
		defer slow.Stop()
		interrupted := ctx.Done()
		begun := started
		for {
			select {
			case <-interrupted:
				interrupted = nil
				show.note("stopping: finishing the rows that were read (Ctrl-C again ends at once)")
				if err := conn.Cancel(base, job, true); err != nil {
					cancel(err)
				}
			case <-begun:
				begun = nil
				slow.Stop()
			case <-slow.C:
				_ = conn.Withdraw(base, job)
				cancel(jobs.Errorf(jobs.CodeIO, "no CPU agent has taken the job within %v: start one (cpuagent --nats URL)", pickup))
			case <-over:
				return
			}
		}
	}()
	r, err := conn.Result(wait, job.ID)
	close(over)
	<-watched
	show.end()
	if err != nil {
		return nil, err
	}
	if r.Status != jobs.Done {
		if r.Error == nil {
			return nil, errors.New("the job failed without a reason")
		}
		return nil, r.Error
	}
	out := &cpuagents.StreamResult{}
	if err := json.Unmarshal(r.Output, out); err != nil {
		return nil, fmt.Errorf("result of job %s: %w", job.ID, err)
	}
	return out, nil
}

// destination is where a run writes.
type destination struct {
	dir, name       string // of the decisions
	rejects, report string
}

// rejectsName stands beside the decisions.
const rejectsName = "rejects.ndjson"

// newDestination checks, before any work, that the files can be written.
func newDestination(output, report string) (*destination, error) {
	d := &destination{dir: filepath.Dir(output), name: filepath.Base(output), report: report}
	d.rejects = filepath.Join(d.dir, rejectsName)
	if d.name == rejectsName {
		return nil, command.Usage("--output: %s is the name of the list of rejected rows: choose another", rejectsName)
	}
	format, _ := cpuagents.FormatOf(output, "ndjson")
	if err := format.Check(); err != nil {
		return nil, command.Usage("--output: %v", err)
	}
	if report != "" && format != "ndjson" {
		return nil, command.Usage("--report: it is made from decisions in plain NDJSON: name an --output that ends with .ndjson")
	}
	for _, path := range []string{output, report} {
		if path == "" {
			continue
		}
		dir := filepath.Dir(path)
		info, err := os.Stat(dir)
		switch {
		case err != nil:
			return nil, command.Usage("write %s: folder %s does not exist: make it first", path, dir)
		case !info.IsDir():
			return nil, command.Usage("write %s: %s is not a folder", path, dir)
		}
		if info, err := os.Stat(path); err == nil && info.IsDir() {
			return nil, command.Usage("write %s: it is a folder: name a file", path)
		}
		probe, err := os.CreateTemp(dir, ".exoswarm-*")
		if err != nil {
			return nil, command.Usage("write %s: %v: choose another place", path, errors.Unwrap(err))
		}
		_ = probe.Close()
		_ = os.Remove(probe.Name())
	}
	return d, nil
}

// writeReport makes the HTML page from the decisions on disk.
func writeReport(d *destination, spec *swarm.Spec, result *cpuagents.StreamResult, series []cpuagents.SeriesSummary) error {
	decisions, err := os.Open(filepath.Join(d.dir, d.name))
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	defer decisions.Close()
	columns := (&cpuagents.StreamSpec{Candidates: spec.Vote.Candidates, Columns: cpuagents.ColumnSpec{Features: spec.Features}}).FeatureColumns()
	h := report.Header{Title: spec.Name, Anomaly: spec.Vote.Candidates[len(spec.Vote.Candidates)-1], Features: columns, Result: *result}
	return writeFile(d.report, func(w io.Writer) error { return report.Write(w, h, decisions, series) })
}
