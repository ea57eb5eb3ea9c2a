package run

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

type detectOptions struct {
	// In is read if Follow is empty, and Out is written if Output is empty or -. Messages go to
	// Err.
	In       io.Reader
	Out, Err io.Writer
	// Log receives warnings. Required.
	Log *slog.Logger
	// SpecFile is the specification of the swarm.
	SpecFile string
	// DataDir has the state of the detector; one process at a time uses it. Required.
	DataDir string
	// Follow is a file that grows and is rotated; empty for In.
	Follow string
	// Output is a file that decisions are added to.
	Output string
	// Anomalies is a file that the incidents are added to, as NDJSON or CSV by its extension, or - for
	// Out; empty for none. With it an empty Output is none.
	Anomalies string
	// Rejects is a file that rejected rows are added to; empty for none.
	Rejects string
	// MaxRejects is the share of the rows of a call, 0 to 1, beyond which rejected rows fail it after
	// everything is written. A file that is followed has no end, and never fails.
	MaxRejects float64
	// All writes all decisions, and not only anomalies.
	All bool
	// TakeLastLine takes a last line without a line end, which otherwise waits for its end.
	TakeLastLine bool
	// Webhook receives anomalies; an empty URL is none.
	Webhook sink.WebhookSpec
	// CSV has settings KEY=VALUE of the dialect.
	CSV []string
}

// snapshotRows is the number of rows after which the state of the agents is stored, and the log
// before it removed. A detector that was killed reads at most this number of rows of its log again.
const snapshotRows = 1_000_000

// detector is a detector in its folder.
type detector struct {
	o       *detectOptions
	spec    *swarm.Spec
	columns rows.ColumnSpec
	most    int // entities
	swarm   *swarmclient.Swarm
	log     func(shard int, dir swarms.Direction) swarms.Log

	rejects *json.Encoder // nil for none
	first   *rows.Reject  // of this process
	tally   rows.Tally    // of this process
	before  uint64        // rows of earlier processes
	keyless feed.Keyless  // rejects of this process
}

// runDetector runs a detector until its input ends or ctx does, which ends with
// command.ErrInterrupted. Rows that were read are decided and written then. It prints a line with
// the counts and the latency.
func runDetector(ctx context.Context, o detectOptions) (err error) {
	d := &detector{o: &o}
	if err := d.readSpec(); err != nil {
		return err
	}
	if o.Webhook.URL != "" { // a wrong one changes no folder
		hook, err := openWebhook(d.spec.Name, o.Webhook, rows.Layout{Candidates: d.spec.Vote.Candidates})
		if err != nil {
			return err
		}
		hook.Close()
	}
	base := context.WithoutCancel(ctx)
	conn, client, end, err := start(base, o.DataDir, o.Err, o.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := d.openSwarm(base, client, func(s swarms.Swarm, shard int) swarms.Log {
		return conn.Swarms.Log(s.Key(), shard, swarms.In)
	}); err != nil {
		return err
	}
	record := d.swarm.Record()
	d.log = func(shard int, dir swarms.Direction) swarms.Log { return conn.Swarms.Log(record.Key(), shard, dir) }
	directory, err := d.directory()
	if err != nil {
		return err
	}
	layout := rows.Layout{
		Candidates: d.spec.Vote.Candidates, Features: d.spec.Features, Drops: true, Keys: d.columns.Key,
		Explain: d.spec.Explain,
	}
	if directory == nil {
		layout.Series = []string{d.spec.Name}
	} else {
		layout.Entities = directory
	}
	limits, err := d.spec.FleetLimits()
	if err != nil {
		return err
	}
	written, err := openNotes(base, d.log(logShard(record, outputShard), swarms.In))
	if err != nil {
		return err
	}
	out := newOutput(&o, layout, written)
	outputs := []cpuagents.Output{{Sink: out}}
	if o.Webhook.URL != "" {
		hook, err := openWebhook(d.spec.Name, o.Webhook, layout)
		if err != nil {
			return err
		}
		defer hook.Close()
		// It stands first: what the files have noted is with the receiver.
		to := cpuagents.Output{Sink: hook, Log: d.log(logShard(record, webhookShard), swarms.Out)}
		outputs = slices.Insert(outputs, 0, to)
	}
	defer func() { err = errors.Join(err, out.close()) }()
	if o.Rejects != "" {
		f, err := os.OpenFile(o.Rejects, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return command.Usage("detect: --rejects: %v", err)
		}
		defer f.Close()
		d.rejects = json.NewEncoder(f)
	}
	in := &tailInput{o: &o, csv: d.spec.CSV, columns: d.columns}
	// A detector that is interrupted decides what it has read.
	finish, stop := context.WithCancelCause(base)
	defer stop(nil)
	defer context.AfterFunc(ctx, func() { stop(jobs.ErrFinish) })()
	done, err := cpuagents.Detect(finish, cpuagents.DetectionOptions{
		Name: d.spec.Name, Record: record, Log: d.log, Logs: logsOf(record), Columns: d.columns,
		Candidates: d.spec.Vote.Candidates, Agents: d.spec.AgentsPerGroup, BatchRows: batch.MaxRows,
		Directory: directory, Inputs: []cpuagents.Input{in}, Outputs: outputs,
		Explainer: explain.New(layout, (*explain.FleetLimits)(limits)),
		Collected: feed.Collected{Answer: written.last.Answer, Counted: written.last.Answer},
		Logger:    o.Log, Stall: time.Minute, Ends: true, Rejected: d.reject, Snapshot: d.snapshot,
		SnapshotRows: snapshotRows,
		Begun: func(_ context.Context, p cpuagents.DetectorProgress) error {
			if err := d.swarm.Wait(ctx); err != nil && ctx.Err() != nil {
				return command.ErrInterrupted
			} else if err != nil {
				return err
			}
			d.before = p.Rows
			return nil
		},
	})
	if !in.opened {
		return err
	}
	d.tally.Rows += done.Rows - d.before
	d.summary(done, in, out)
	if err == nil && ctx.Err() != nil {
		return command.ErrInterrupted
	}
	if err == nil && d.o.Follow == "" {
		err = rows.TooManyRejects("the input", &d.tally, d.o.MaxRejects, d.tally.Most())
	}
	return err
}

// directory returns the entities of the detector; nil without a key.
func (d *detector) directory() (*feed.Directory, error) {
	if len(d.columns.Key) == 0 {
		return nil, nil
	}
	bytes := 0
	if d.spec.EvictAfter > 0 {
		bound, err := d.spec.Bind()
		if err != nil {
			return nil, fmt.Errorf("the state of a group: %w", err)
		}
		agent, group := bound.StateBytes()
		bytes = agent*d.spec.AgentsPerGroup + group
	}
	return feed.NewDirectory(d.swarm.Record(), time.Duration(d.spec.EvictAfter), bytes, nil), nil
}

func (d *detector) reject(r *rows.Reject) error {
	d.tally.Reject(r)
	d.keyless.Count(r)
	if d.first == nil {
		d.first = r
	}
	if d.rejects == nil {
		return nil
	}
	if err := d.rejects.Encode(r); err != nil {
		return fmt.Errorf("detect: --rejects: %w", err)
	}
	return nil
}

func (d *detector) summary(done *cpuagents.DetectorProgress, in *tailInput, out *output) {
	if d.first != nil {
		fmt.Fprintf(d.o.Err, "%d rows rejected (%d without a key, %d beyond max_entities); the first: %s: %s\n",
			d.tally.Rejected, d.keyless.WithoutKey, d.keyless.BeyondEntities, d.first.Place(), d.first.Reason)
	}
	if in.early > 0 {
		fmt.Fprintf(d.o.Err, "%d rows have numbers for timestamps that mean times before 1990, as seconds since "+
			"1970: if they are none, set csv.time\n", in.early)
	}
	if out.counts.dropped > 0 && in.order.Falls() {
		fmt.Fprintln(d.o.Err,
			"the input is in falling order, newest first, so nearly all its rows are late: sort it by time")
	}
	of := ""
	if len(d.columns.Key) > 0 {
		of = " of " + command.Count(done.Entities, "entity", "entities")
	}
	fmt.Fprintf(d.o.Err, "%s read%s, %s, %s, %d dropped; from reading a row to its decision p50 %.1f ms, p99 %.1f ms\n",
		command.Count(done.Rows-d.before, "row", "rows"), of,
		command.Count(out.counts.decisions, "decision", "decisions"),
		command.Count(out.counts.anomalies, "anomaly", "anomalies"), out.counts.dropped,
		float64(out.hist.ValueAtPercentile(50))/1000,
		float64(out.hist.ValueAtPercentile(99))/1000)
}
