// Package detect runs a detector in one process: it reads rows of a stream or a growing file, feeds
// them through a swarm that lasts, writes anomalies, and keeps everything in a folder.
package detect

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/explain/explainlog"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/fleet"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// Options configure a detector.
type Options struct {
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
	// Output is a file to which decisions are added.
	Output string
	// Anomalies is a file to which the incidents are added, as NDJSON or CSV by its extension, or - for
	// Out; empty for none. With it an empty Output is none.
	Anomalies string
	// Rejects is a file to which rejected rows are added; empty for none.
	Rejects string
	// MaxRejects is the share of the rows of a call, 0 to 1, beyond which rejected rows fail it after
	// everything is written. A file that is followed has no end, and never fails.
	MaxRejects float64
	// All writes all decisions, and not only anomalies.
	All bool
	// TakeLastLine takes a last line without a line end, which otherwise waits for its end.
	TakeLastLine bool
	// CSV has settings KEY=VALUE of the dialect.
	CSV []string
}

const (
	// snapshotRows is the number of rows after which the state of the agents is stored, and the log
	// before it removed. A detector that was killed reads at most so many rows of its log again.
	snapshotRows = 1_000_000
	// endTime bounds the end of a detector after its input has ended.
	endTime = time.Minute
)

// detector is a running detector. The goroutine of Run feeds it, and one more reads the answers;
// mu guards what both use.
type detector struct {
	o         *Options
	spec      *swarm.Spec
	columns   rows.ColumnSpec
	most      int // entities
	swarm     *swarmclient.Swarm
	record    swarms.Swarm
	answers   *commitlog.Answers
	known     *feed.Entities  // nil if entities lose their groups
	evict     *feed.Evictions // nil if they keep them
	redo      *redo           // nil if the last batch is complete
	names     encode.Entities
	state     *commitlog.State
	output    *output
	summaries *explainlog.Log // of the goroutine that collects
	rejects   *json.Encoder   // nil for none
	first     *rows.Reject    // of this process
	counts    struct{ rows, rejected, withoutKey, beyond uint64 }
	tally     rows.Tally // of this process
	order     rows.Order
	early     uint64 // rows of this process with numbers for timestamps that mean times before 1990
	batch     *feed.Batch
	fresh     uint64   // rows since the last snapshot
	began     []uint64 // by shard: last entry of an earlier process
	slow      bool     // the input has fewer rows than fit into a batch

	window feed.Window // the entries whose decisions are not written
}

// Run runs a detector until its input ends or ctx does, which ends with command.ErrInterrupted.
// Rows that were read are decided and written then. It prints a line with the counts and the
// latency.
func Run(ctx context.Context, o Options) (err error) {
	d := &detector{o: &o}
	if err := d.readSpec(); err != nil {
		return err
	}
	base := context.WithoutCancel(ctx)
	conn, client, end, err := start(base, o.DataDir, o.Err, o.Log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := d.openSwarm(base, client, func(s swarms.Swarm) swarms.Log {
		return conn.Swarms.Log(s.Key(), 0, swarms.In)
	}); err != nil {
		return err
	}
	d.record = d.swarm.Record()
	key := d.record.Key()
	log := func(shard int, dir swarms.Direction) swarms.Log { return conn.Swarms.Log(key, shard, dir) }
	known, err := d.openEntities()
	if err != nil {
		return err
	}
	if d.state, err = commitlog.Open(base, commitlog.Options{
		Record: d.record, Log: log, Logs: logsOf(d.record), Dictionary: known,
	}); err != nil {
		return err
	}
	d.began = slices.Clone(d.state.After)
	if err := d.swarm.Wait(ctx); err != nil { // a query to each shard, which is an entry too
		if ctx.Err() != nil {
			return command.ErrInterrupted
		}
		return err
	}
	if err := d.state.FindEnds(base); err != nil {
		return err
	}
	if d.evict != nil {
		d.evict.Log, d.evict.Settled = d.state, slices.Clone(d.state.After)
		d.evict.States, err = statelog.OpenStates(base, log(logsOf(d.record).States, swarms.In))
		if err != nil {
			return damaged(err)
		}
	}
	layout := encode.Layout{
		Candidates: d.spec.Vote.Candidates, Features: d.spec.Features, Drops: true, Keys: d.columns.Key,
		Entities: d.names,
		Explain:  d.spec.Explain,
	}
	if len(layout.Keys) == 0 {
		layout.Series = []string{d.spec.Name}
	}
	written, err := openNotes(base, log(logShard(d.record, outputShard), swarms.In))
	if err != nil {
		return err
	}
	if d.output, err = openOutput(&o, written); err != nil {
		return err
	}
	d.output.enc = encode.NewNDJSON(layout)
	defer func() { err = errors.Join(err, d.output.close()) }()
	if o.Anomalies != "" {
		if err := d.openIncidents(layout); err != nil {
			return err
		}
	}
	summaries := log(logsOf(d.record).Summaries, swarms.In)
	limits, err := d.spec.FleetLimits()
	if err != nil {
		return err
	}
	d.summaries, err = explainlog.Open(base, summaries, explain.New(layout, (*fleet.Options)(limits)),
		d.output.noted.last.Answer)
	if err != nil {
		return damaged(err)
	}
	if err := d.openAnswers(base, log); err != nil {
		return err
	}
	if err := d.output.begin(ctx); err != nil {
		return err
	}
	if o.Rejects != "" {
		f, err := os.OpenFile(o.Rejects, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return command.Usage("detect: --rejects: %v", err)
		}
		defer f.Close()
		d.rejects = json.NewEncoder(f)
	}
	return d.run(ctx, base)
}

// run reads the input to its end, and waits for all decisions.
func (d *detector) run(ctx, base context.Context) (err error) {
	work, stop := context.WithCancelCause(base)
	defer stop(nil)
	var reading sync.WaitGroup
	reading.Go(func() {
		if err := d.collect(work); err != nil {
			stop(err)
		}
	})
	feeding, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(work, func() { end(context.Cause(work)) })()
	err = d.feed(feeding, work)
	if err == nil {
		last, cancel := context.WithTimeoutCause(work, endTime, errors.New("the last decisions did not come in time"))
		if err = d.awaitAll(last); err == nil && d.fresh > 0 {
			err = d.snapshot(last)
		}
		if err == nil {
			err = d.output.record(last, d.output.reached.Load(), true)
		}
		cancel()
	}
	failed := context.Cause(work)
	stop(nil)
	reading.Wait()
	if failed != nil {
		return failed
	}
	d.summary()
	if err == nil && ctx.Err() != nil {
		return command.ErrInterrupted
	}
	if err == nil && d.o.Follow == "" {
		err = rows.TooManyRejects("the input", &d.tally, d.o.MaxRejects, d.tally.Most())
	}
	return err
}
