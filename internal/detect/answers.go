package detect

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// summary prints the counts of this process.
func (d *detector) summary() {
	w, c := d.output, d.counts
	if d.first != nil {
		fmt.Fprintf(d.o.Err, "%d rows rejected (%d without a key, %d beyond max_entities); the first: %s: %s\n",
			c.rejected, c.withoutKey, c.beyond, d.first.Place(), d.first.Reason)
	}
	if d.early > 0 {
		fmt.Fprintf(d.o.Err, "%d rows have numbers for timestamps that mean times before 1990, as seconds since "+
			"1970: if "+
			"they are none, set csv.time\n", d.early)
	}
	if w.dropped > 0 && d.order.Falls() {
		fmt.Fprintln(d.o.Err,
			"the input is in falling order, newest first, so nearly all its rows are late: sort it by time")
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
	if err := d.output.record(ctx, e.Place, snapshot); err != nil {
		return err
	}
	if snapshot {
		if err := d.summaries.Put(ctx); err != nil {
			return err
		}
		d.answers.Trim(min(e.Place, d.summaries.Oldest()) + 1)
	}
	d.output.reached.Store(e.Place)
	d.window.Reach(e.Shard, e.Seq)
	return nil
}
