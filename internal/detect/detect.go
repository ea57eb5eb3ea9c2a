// Package detect runs a detector in one process: it reads rows of a stream or a growing file, feeds
// them through a swarm that lasts, writes anomalies, and keeps everything in a folder.
package detect

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
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/encode"
	"github.com/exoswarm/exoswarm/cpuagents/eviction"
	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/explain/explainlog"
	"github.com/exoswarm/exoswarm/cpuagents/fleet"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/bucket"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/localcluster"
	"github.com/exoswarm/exoswarm/internal/runinput"
	"github.com/exoswarm/exoswarm/internal/specfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/natsq"
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
	// All writes all decisions, and not only anomalies.
	All bool
	// CSV has settings KEY=VALUE of the dialect.
	CSV []string
}

const (
	// window is the number of batches without an answer.
	window = 4
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
	known     *dictionary        // nil if entities lose their groups
	evict     *eviction.Eviction // nil if they keep them
	settled   []uint64           // by shard: the answers up to it may have states that are not stored; nil if none has
	redo      *redo              // nil if the last batch is complete
	names     encode.Entities
	state     *state
	output    *output
	summaries *explainlog.Log // of the goroutine that collects
	rejects   *json.Encoder   // nil for none
	first     *rows.Reject    // of this process
	counts    struct{ rows, rejected, withoutKey, beyond uint64 }
	obs       batch.Observations
	bytes     int
	fresh     uint64   // rows since the last snapshot
	began     []uint64 // by shard: last entry of an earlier process
	slow      bool     // the input has fewer rows than fit into a batch

	answered []*statelog.Answered // by shard: the entries whose decisions are written
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
	conn, client, end, err := start(base, o.DataDir, o.Log)
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
	if d.state, err = openState(base, d.record, log, known); err != nil {
		return err
	}
	d.began = slices.Clone(d.state.last)
	if err := d.swarm.Wait(base); err != nil { // a query to each shard, which is an entry too
		return err
	}
	if err := d.state.findEnds(base); err != nil {
		return err
	}
	if d.evict != nil {
		d.settled = slices.Clone(d.state.last)
		d.evict.States, err = statelog.OpenStates(base, log(logShard(d.record, statesShard), swarms.In))
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
	if d.output, err = openOutput(&o, d.state.out); err != nil {
		return err
	}
	d.output.enc = encode.NewNDJSON(layout)
	defer func() { err = errors.Join(err, d.output.close()) }()
	if o.Anomalies != "" {
		if err := d.openIncidents(layout); err != nil {
			return err
		}
	}
	clock, err := rows.NewClock(d.columns.CSV)
	if err != nil {
		return err
	}
	summaries := log(logShard(d.record, summaryShard), swarms.In)
	limits, err := d.spec.FleetLimits()
	if err != nil {
		return err
	}
	d.summaries, err = explainlog.Open(base, summaries, explain.New(layout, clock, (*fleet.Options)(limits)),
		d.state.out.Answer)
	if err != nil {
		return damaged(err)
	}
	if err := d.openAnswers(base, log); err != nil {
		return err
	}
	if err := d.output.begin(ctx, d.state); err != nil {
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

// start starts the cluster of a folder. The caller calls end.
func start(ctx context.Context, dataDir string, log *slog.Logger) (
	conn *natsq.Conn, client *swarmclient.Client, end func() error, err error,
) {
	cluster, err := localcluster.Start(ctx, localcluster.Options{DataDir: dataDir, Keep: true, Log: log})
	if err != nil {
		return nil, nil, nil, err
	}
	conn = cluster.Conn()
	if client, err = swarmclient.New(swarmclient.Options{Swarms: conn.Swarms}); err != nil {
		return nil, nil, nil, errors.Join(err, cluster.Close())
	}
	return conn, client, cluster.Close, nil
}

// readSpec reads the specification, and makes it one of a swarm that lasts.
func (d *detector) readSpec() error {
	spec, err := specfile.Read(d.o.SpecFile)
	if err != nil {
		return err
	}
	switch {
	case spec.ByAgent():
		return command.Usage("detect: %s addresses agents, and rows are for groups: make it with exoswarm swarm create",
			d.o.SpecFile)
	case spec.GroupCount != 0:
		return command.Usage("detect: %s has groups: %d: a detector has max_entities of them: leave groups out",
			d.o.SpecFile, spec.GroupCount)
	}
	if err := runinput.SetCSV(&spec.CSV, d.o.CSV); err != nil {
		return err
	}
	// The last time of each entity is in the state of its group, so the group finds late rows.
	d.columns = rows.ColumnSpec{
		Timestamp: spec.Timestamp, Features: spec.Features, AnyOrder: true, Key: spec.Key,
		MaxEntities: spec.MaxEntities,
	}
	if !spec.CSV.IsZero() {
		d.columns.CSV = &spec.CSV
	}
	if spec.Observations.Late == swarm.Reject {
		spec.Observations.Late = swarm.Drop
	}
	d.most = max(d.columns.Entities(), 1)
	if spec.Shards > d.most {
		return command.Usage("detect: %s has shards: %d, and %d groups, one for each entity: "+
			"use at most as many shards",
			d.o.SpecFile, spec.Shards, d.most)
	}
	spec.GroupCount = d.most
	d.spec = spec
	return nil
}

// openSwarm opens the swarm of the folder, or makes it. A specification that differs is refused.
func (d *detector) openSwarm(ctx context.Context, client *swarmclient.Client, log func(swarms.Swarm) swarms.Log,
) (err error) {
	all, err := client.List(ctx)
	if err != nil {
		return err
	}
	if len(all) == 0 {
		d.swarm, err = client.Create(ctx, d.spec, nil)
		return err
	}
	if d.swarm, err = client.Open(ctx, all[0].ID); err != nil {
		return err
	}
	// A process that was killed while it made the swarm leaves a record without logs.
	if last, err := log(d.swarm.Record()).Last(ctx); errors.Is(err, jobs.ErrNotFound) || err == nil && last.Seq == 0 {
		if err := client.Delete(ctx, all[0].ID, nil); err != nil {
			return err
		}
		d.swarm, err = client.Create(ctx, d.spec, nil)
		return err
	}
	now, err := json.Marshal(d.spec)
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	before, err := json.Marshal(d.swarm.Spec())
	if err != nil {
		return fmt.Errorf("encode the spec: %w", err)
	}
	if !bytes.Equal(now, before) {
		return command.Usage("detect: --data-dir %s has the state of another specification than %s: name another "+
			"folder, or use the former specification", d.o.DataDir, d.o.SpecFile)
	}
	return nil
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
			err = d.output.record(last, d.state, d.output.reached.Load(), true)
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
	return err
}

// summary prints the counts of this process.
func (d *detector) summary() {
	w, c := d.output, d.counts
	if d.first != nil {
		fmt.Fprintf(d.o.Err, "%d rows rejected (%d without a key, %d beyond max_entities); the first: %s: %s\n",
			c.rejected, c.withoutKey, c.beyond, d.first.Place(), d.first.Reason)
	}
	fmt.Fprintf(d.o.Err, "%d rows read of %d entities, %d decisions, %d anomalies, %d dropped; from reading a row to "+
		"its decision p50 %.1f ms, p99 %.1f ms\n", c.rows, d.entities(), w.decisions, w.anomalies, w.dropped,
		float64(w.hist.ValueAtPercentile(50))/1000, float64(w.hist.ValueAtPercentile(99))/1000)
}

// collect writes the answers of the swarm in their order, from the first that is not in the output.
func (d *detector) collect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	entries, failed := make(chan commitlog.Answer), make(chan error, 1)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer cancel(nil)
	reading.Go(func() { failed <- d.answers.Run(ctx, entries) })
	for {
		select {
		case err := <-failed:
			if ctx.Err() != nil {
				return nil // run has ended it
			}
			return err
		case e := <-entries:
			if err := d.answer(ctx, e); err != nil {
				return err
			}
		}
	}
}

// answer takes one answer.
func (d *detector) answer(ctx context.Context, e commitlog.Answer) error {
	if d.evict != nil {
		d.evict.Names.Reach(e.Shard, e.Seq)
	}
	switch e.Kind {
	case swarms.EntryDecide:
		got, err := batch.DecodeDecisions(e.Data)
		if err != nil {
			return err
		}
		if err := d.decide(e, e.Ref > d.began[e.Shard], got); err != nil {
			return err
		}
	case swarms.EntrySwapped:
		if err := d.swapped(ctx, e); err != nil {
			return err
		}
	case swarms.EntryRejected:
		refused := &jobs.Error{Code: jobs.CodeInternal, Message: "the swarm refused an entry"}
		if err := json.Unmarshal(e.Data, refused); err != nil {
			return fmt.Errorf("refusal of entry %d: %w", e.Ref, err)
		}
		return refused
	}
	if d.summaries.Reach(e.Place); e.Place <= d.summaries.Sent {
		return nil
	}
	// The answers before a snapshot are removed after it.
	snapshot := e.Kind == swarms.EntrySnapshotted
	if err := d.output.record(ctx, d.state, e.Place, snapshot); err != nil {
		return err
	}
	if snapshot {
		if err := d.summaries.Put(ctx); err != nil {
			return err
		}
		d.answers.Trim(min(e.Place, d.summaries.Oldest()) + 1)
	}
	d.output.reached.Store(e.Place)
	d.answered[e.Shard].Reach(e.Seq)
	return nil
}

// feed reads the input until it or ctx ends.
func (d *detector) feed(ctx, work context.Context) error {
	d.redo = d.again()
	begin := d.state.now.At
	if d.redo != nil {
		begin = d.redo.from
	}
	in, err := openInput(ctx, d.o, d.spec.CSV, begin)
	if err == nil && d.drop(in) {
		in.close()
		in, err = openInput(ctx, d.o, d.spec.CSV, d.state.now.At)
	}
	if err != nil {
		return err
	}
	defer in.close()
	d.obs.Width = len(d.spec.Features)
	skip, records := in.at.Skip, in.at.Records-uint64(in.at.Skip)
	for n := uint64(1); ; {
		// Rows that come meanwhile are the next batch. So batches are as large as the swarm and the
		// disk need to keep up, and a row that comes alone waits for nothing.
		if d.slow {
			if err := d.awaitAll(work); err != nil {
				return err
			}
		}
		doc, err := in.next(ctx, &n)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if in.file != nil && doc.begin.Offset == 0 {
			records = 0
		}
		if err := d.document(work, doc, &skip, &records); err != nil {
			return err
		}
		if d.fresh >= snapshotRows {
			if err := d.awaitAll(work); err != nil {
				return err
			}
			if err := d.snapshot(work); err != nil {
				return err
			}
		}
	}
}

// document feeds the rows of a document. skip is the number of records to leave out, and records
// counts those of the file.
func (d *detector) document(ctx context.Context, doc document, skip *int, records *uint64) error {
	r, err := rows.OpenText(doc.name, io.NopCloser(bytes.NewReader(doc.text)), doc.format, d.columns)
	if err != nil {
		return err
	}
	defer r.Close()
	arrived := clock{text: doc.text, arrivals: doc.arrivals}
	if doc.header {
		arrived.next()
	}
	at := doc.begin
	at.Skip = 0
	for {
		row, rejected, err := r.Next()
		if errors.Is(err, io.EOF) {
			doc.end.Records = *records
			d.slow = at.Skip < batchRows
			return d.flush(ctx, doc.end)
		}
		if err != nil {
			return err
		}
		read := arrived.next()
		before := at
		*records++
		at.Skip++
		at.Records = *records
		if *skip > 0 {
			*skip--
			continue
		}
		group := 0
		if rejected == nil && len(d.columns.Key) > 0 {
			var ok bool
			if group, ok, err = d.entity(ctx, &row, before); err != nil {
				return err
			}
			if !ok {
				rejected = &rows.Reject{
					Series: doc.name, Reason: d.columns.TooMany(row.Key), Cause: rows.CauseEntities,
				}
			}
		}
		if d.redo != nil {
			row.Number = *records
			if err := d.repeat(ctx, group, &row, rejected, read, at); err != nil {
				return err
			}
			continue
		}
		if rejected != nil {
			rejected.Row = *records
			if err := d.reject(rejected); err != nil {
				return err
			}
			continue
		}
		row.Number = *records
		d.add(group, &row, read)
		if d.obs.Len() >= batchRows || d.bytes >= batchBytes {
			if err := d.flush(ctx, at); err != nil {
				return err
			}
		}
	}
}

// Bounds of a batch, which are those of a stream job.
const (
	batchRows  = 4096
	batchBytes = 480 << 10
)

// add adds a row, which was read at a time, to the batch.
func (d *detector) add(group int, row *rows.Row, read time.Time) {
	o := &d.obs
	o.Group = append(o.Group, uint32(group))
	o.Row = append(o.Row, row.Number)
	o.Time = append(o.Time, row.Time)
	o.Read = append(o.Read, read.UnixNano())
	o.Features = append(o.Features, row.Features...)
	o.Timestamp = append(o.Timestamp, row.Timestamp)
	o.Value = append(o.Value, row.Values...)
	d.bytes += len(row.Timestamp) + 12*len(row.Features) + 56
}

// reject counts and notes a row that cannot be used.
func (d *detector) reject(r *rows.Reject) error {
	d.counts.rejected++
	switch r.Cause {
	case rows.CauseKey:
		d.counts.withoutKey++
	case rows.CauseEntities:
		d.counts.beyond++
	}
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

// flush appends the batch, behind which the input continues at a position. An empty batch is not
// appended.
func (d *detector) flush(ctx context.Context, at position) error {
	if d.redo != nil {
		return nil // the batch goes on
	}
	if d.evict != nil {
		if err := d.move(ctx); err != nil {
			return err
		}
	}
	n := d.obs.Len()
	if n == 0 {
		return nil
	}
	parts, err := d.parts(ctx)
	if err != nil {
		return err
	}
	if err := d.state.commit(ctx, swarms.EntryObserve, parts, at); err != nil {
		return err
	}
	d.sent(n)
	return nil
}

// sent empties the batch, which is stored.
func (d *detector) sent(n int) {
	d.counts.rows += uint64(n)
	d.fresh += uint64(n)
	d.obs.Reset()
	d.bytes = 0
}

// snapshot stores the state of all agents, and removes the log before it and the snapshot before.
// All entries are answered. collect notes the output before the answers are removed.
func (d *detector) snapshot(ctx context.Context) error {
	dir := localcluster.SnapshotsDir(d.o.DataDir)
	store, err := bucket.Open(ctx, dir)
	if err != nil {
		return err
	}
	defer store.Close()
	name := fmt.Sprintf("at-%d", d.state.last[0]+1)
	if _, err := d.swarm.Snapshot(ctx, name); err != nil {
		return fmt.Errorf("snapshot of the detector: %w", err)
	}
	if err := d.state.findEnds(ctx); err != nil {
		return err
	}
	if err := d.awaitAll(ctx); err != nil {
		return err
	}
	if err := d.state.mark(ctx); err != nil { // of entries that are removed now
		return err
	}
	if _, err := d.swarm.Trim(ctx, store, name, nil); err != nil {
		return fmt.Errorf("shorten the log of the detector: %w", err)
	}
	d.fresh = 0
	old, err := store.Folders(ctx)
	if err != nil {
		return err
	}
	for _, folder := range old {
		if folder != name {
			if err := os.RemoveAll(filepath.Join(dir, folder)); err != nil {
				return fmt.Errorf("remove an old snapshot: %w", err)
			}
		}
	}
	return nil
}
