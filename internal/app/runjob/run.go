// Package runjob is the job of one run of a swarm over inputs: it submits the job to a cluster, or
// to a cluster in this process (Cluster), shows its progress, and brings its output to the user.
package runjob

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os/signal"
	"syscall"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// Options are the settings of a run.
type Options struct {
	// Command is the name of the command in traces.
	Command string
	// In, Out and Err are the standard streams of the command. Messages and progress go to Err.
	In       io.Reader
	Out, Err io.Writer
	// Log receives warnings, and the log of a cluster in this process. Required.
	Log *slog.Logger
	// Progress is auto, plain, json or none.
	Progress string

	// SpecFile is the specification of the swarm.
	SpecFile string
	// Inputs are files and folders, or - for standard input.
	Inputs []string
	// Sources is the file with a list of sources that are not files; empty for none.
	Sources string
	// CSV has settings KEY=VALUE of the dialect of CSV files. They replace settings of the
	// specification.
	CSV []string
	// Strict ends the run at the first row that is not valid.
	Strict bool
	// MaxRejects is the share of the rows of a source, 0 to 1, beyond which rejected rows fail the run
	// after everything is written.
	MaxRejects float64
	// BatchRows is the most rows of a message, 1 to 4096; 0 leaves it to the agent.
	BatchRows int

	// Output, Rejects and Report are as in userfile.Paths.
	Output, Rejects, Report string
	// Anomalies is the place of the incidents; empty for none.
	Anomalies string
	// Labels is the file of labelled incidents; empty for none.
	Labels string
	// Webhook receives anomalies as they are found; nil for none.
	Webhook *sink.WebhookSpec
	// Sinks receive decisions as they are made.
	Sinks []sink.Spec

	// NATS and Login are the server of a cluster. Both empty run everything in this process.
	NATS  string
	Login natsconn.Login
	// Patience is how long the server of a cluster may be away.
	Patience time.Duration
	// Attach is the id of the job of an earlier run, for Attach alone.
	Attach string
	// Detach submits the job, prints its id and ends.
	Detach bool

	// DataDir, Roots, Egress and Secrets are settings of a cluster in this process.
	DataDir string
	Roots   map[files.Root]string
	Egress  []string
	Secrets string
}

// OnCluster reports whether the run is a job of a cluster, and not of this process.
func (o *Options) OnCluster() bool { return o.NATS != "" || o.Login.Context != "" }

func (o *Options) paths() userfile.Paths {
	return userfile.Paths{Output: o.Output, Anomalies: o.Anomalies, Rejects: o.Rejects, Report: o.Report}
}

// input is the input of a run: files, other sources, and at most one stream that is read live.
type input struct {
	files  []userfile.Input
	others []source.Series // the live stream is one of them
	live   *userfile.Live  // nil for none
	// spooled has the copies of streams; its interruption ends the input, and not the run.
	spooled *userfile.Spooled
}

// openInput finds the inputs of a run, and reads the streams that cannot be read live. The caller
// closes the result, also when an error is returned.
func openInput(ctx context.Context, o *Options, csv dialect.CSV, dest *userfile.Destination) (*input, error) {
	in, stdin := &input{}, o.In
	paths, err := userfile.Expand(o.Inputs)
	if err != nil {
		return in, err
	}
	if !o.Detach { // this process would have to stay to send it
		if in.live, stdin, err = userfile.OpenLive(ctx, paths, stdin, csv); err != nil {
			return in, err
		}
		if in.live != nil {
			paths = nil
		}
	}
	if in.spooled, err = userfile.Spool(ctx, paths, stdin); err != nil {
		return in, err
	}
	if in.files, err = userfile.Find(in.spooled.Paths, dest.Files()...); err != nil {
		return in, err
	}
	if in.others, err = userfile.ReadSources(o.Sources, in.files); err != nil {
		return in, err
	}
	if in.live == nil {
		return in, nil
	}
	for _, s := range in.others {
		if s.Name == in.live.Source().Name {
			return in, command.Usage("--sources %s: a source is called %s as the input is: rename it", o.Sources,
				s.Name)
		}
	}
	in.others = append(in.others, in.live.Source())
	return in, nil
}

// close ends the reading and removes the copies of streams.
func (in *input) close() (err error) {
	if in.spooled != nil {
		err = in.spooled.Close()
	}
	if cerr := in.live.Close(); err == nil && cerr != nil {
		err = fmt.Errorf("read %s: %w", in.live.Name(), cerr)
	}
	return err
}

// names returns the names of all series, and nil when they are not known yet: a source may be a
// folder.
func (in *input) names() []string {
	if len(in.others) > 0 {
		return nil
	}
	names := make([]string, len(in.files))
	for i, f := range in.files {
		names[i] = f.Name
	}
	return names
}

func readSpec(o *Options) (*swarm.Spec, error) {
	spec, err := userfile.ReadSpec(o.SpecFile)
	if err != nil {
		return nil, err
	}
	if spec.Topology().ByAgent {
		return nil, command.Usage("run: %s addresses agents, and files are for groups: make it with exoswarm swarm "+
			"create", o.SpecFile)
	}
	return spec, userfile.SetCSV(&spec.CSV, o.CSV)
}

// Run is one run from its input to its output: it submits the job, waits for it, writes the output
// and prints a table. When ctx ends, the run finishes the rows that it has read, writes their
// decisions, and returns command.ErrInterrupted.
func Run(ctx context.Context, o Options) (err error) {
	spec, err := readSpec(&o)
	if err != nil {
		return err
	}
	dest, err := userfile.NewDestination(o.paths())
	if err != nil {
		return err
	}
	defer func() {
		if cerr := dest.Close(); err == nil {
			err = cerr
		}
	}()
	known, err := readLabels(o.Labels, dest)
	if err != nil {
		return err
	}
	if dest.UsesStdout() {
		signal.Ignore(syscall.SIGPIPE) // the default action would leave temporary files
	}
	in, err := openInput(ctx, &o, spec.CSV, dest)
	defer func() {
		if cerr := in.close(); err == nil {
			err = cerr
		}
	}()
	if err != nil {
		return err
	}
	interrupt := ctx
	if in.spooled.Interrupted { // the interrupt has ended the input, and not the run
		ctx = context.WithoutCancel(ctx)
	}
	if len(spec.Key) > 0 && spec.GroupCount != 0 {
		return command.Usage("run: %s has a key and groups: %d: a run has max_entities of them: leave groups out",
			o.SpecFile, spec.GroupCount)
	}
	if n := len(in.files) + len(in.others); spec.GroupCount != 0 && spec.GroupCount != n {
		return command.Usage("run: %s has groups: %d, and the input %d series, a group each: leave groups out for a "+
			"run, or make the swarm with exoswarm swarm create", o.SpecFile, spec.GroupCount, n)
	}
	spec.GroupCount = 0 // distinguishes the swarm of a run from one that lasts
	if names := in.names(); names != nil && len(spec.Key) == 0 {
		if err := known.check(names); err != nil {
			return err
		}
	}
	show, err := newProgress(o.Progress, o.Err)
	if err != nil {
		return err
	}
	tracing, err := command.NewTracing(ctx, "exoswarm", command.AgentName(o.Command),
		slog.New(slog.NewTextHandler(o.Err, nil)))
	if err != nil {
		return err
	}
	defer tracing.Close()
	ctx = tracing.Context(ctx)
	id := natsconn.NewID()
	// Start and end are short. ctx ends the work of the job alone, which then finishes early.
	link, err := connect(ctx, &o, in, dest, tracing, id)
	if err != nil {
		return err
	}
	defer func() { err = link.close(err) }()
	conn, carrier, base := link.conn, link.carrier, link.base
	owned := &objects{carrier: carrier, id: id, own: true}
	defer func() { err = owned.settle(base, &o, err) }()
	live := dest.Streams() && !o.Detach
	if live {
		dest.GoLive(ctx, o.Out, func() {
			// Nobody reads the other rows. A job that is over cannot be cancelled, and need not be.
			_ = conn.Queue.Cancel(base, jobs.Job{ID: id, Pool: jobs.PoolCPU}, true)
		})
		defer dest.EndLive()
	}
	// One subject of the job carries the requests for input and the rows of the output.
	if live || in.live != nil {
		stop, err := conn.Results.Rows(id, func(message []byte) []byte {
			if n, ok := source.ParseInputRequest(message); ok && in.live != nil {
				return in.live.Answer(n)
			}
			return dest.Take(message)
		})
		if err != nil {
			return err
		}
		defer stop()
	}
	rec := recordOf(spec, dest.Format())
	_, rec.Incidents = dest.Incidents()
	rec.NoOutput = !dest.HasOutput()
	job, err := (&submission{
		conn: conn, carrier: carrier, id: id, spec: spec, input: in, record: rec, live: live, objects: owned,
	}).submit(ctx, &o)
	if err != nil {
		return err
	}
	owned.at, owned.sole = waiting, carrier.copies() || in.live != nil
	if o.OnCluster() {
		show.job(id, o.Detach)
	}
	if o.Detach {
		_, err := fmt.Fprintln(o.Out, id)
		return err
	}
	result, err := await(ctx, base, conn, job, show, true)
	if err != nil {
		return dest.Explain(err)
	}
	if in.spooled.Interrupted {
		result.Interrupted = true
	}
	d := &delivery{
		conn: conn, carrier: carrier, id: id, record: rec, dest: dest, labels: known, show: show, objects: owned,
	}
	if err := d.finish(interrupt, &o, result); err != nil {
		return err
	}
	return o.tooManyRejects(result)
}

// tooManyRejects returns an error if more than MaxRejects of the rows of a source were rejected,
// with the most frequent reason.
func (o *Options) tooManyRejects(r *cpuagents.StreamResult) error {
	most := r.MostRejected
	if most.Rows == 0 { // a CPU agent of an earlier version has told the sums alone
		most = cpuagents.RejectedRows{Source: "the input", Rows: r.Observations + r.Rejected, Rejected: r.Rejected}
	}
	return rows.TooManyRejects(most.Source, &rows.Tally{Rows: most.Rows, Rejected: most.Rejected},
		o.MaxRejects, most.Reason)
}

// cleanupLimit bounds the clean-up of a run, so that Ctrl-C ends a run within 5 s whatever the
// server does.
const cleanupLimit = 3 * time.Second
