package detect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/eviction"
	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// openEntities makes the dictionary of the detector.
func (d *detector) openEntities() (commitlog.Dictionary, error) {
	if d.spec.EvictAfter == 0 {
		d.known = feed.NewEntities(d.most, nil)
		d.names = d.known
		return d.known, nil
	}
	bound, err := d.spec.Bind()
	if err != nil {
		return nil, fmt.Errorf("the state of a group: %w", err)
	}
	agent, group := bound.StateBytes()
	d.evict = &feed.Evictions{Eviction: eviction.New(eviction.Options{
		Most: d.most, After: time.Duration(d.spec.EvictAfter), StateBytes: agent*d.spec.AgentsPerGroup + group,
		Group:   d.record.EntityGroup,
		ShardOf: feed.Groups{Record: d.record, Keyed: true}.ShardOf,
	})}
	d.names = d.evict.Names
	return d.evict, nil
}

// entities returns the number of entities with a group.
func (d *detector) entities() int {
	if d.evict != nil {
		return d.evict.Roster.Len()
	}
	return d.known.Len()
}

// openAnswers opens the answers that are not written, and those that the explainer has not seen.
func (d *detector) openAnswers(ctx context.Context, log func(shard int, dir swarms.Direction) swarms.Log) error {
	o := commitlog.AnswersOptions{
		Order: log(logsOf(d.record).Order, swarms.In), Taken: d.output.noted.last.Answer, From: d.summaries.Next(),
	}
	for k := range d.record.ShardCount() {
		base := uint64(0)
		if b := d.record.BaseOf(k); b != nil {
			base = b.Entry
		}
		o.Out, o.Bases = append(o.Out, log(k, swarms.Out)), append(o.Bases, base)
	}
	var at []uint64
	var err error
	if d.answers, at, err = commitlog.OpenAnswers(ctx, o); err != nil {
		return damaged(err)
	}
	d.window = feed.NewWindow(at)
	if d.evict != nil {
		d.evict.Window = d.window
	}
	d.output.reached.Store(d.output.noted.last.Answer)
	return nil
}

// entity returns the number of the entity of a row, and false if there is none left. A full batch that
// holds the groups of all others is appended first, with the position before the row.
func (d *detector) entity(ctx context.Context, row *rows.Row, before position) (i int, ok bool, err error) {
	if d.evict == nil {
		i, _, full, err := d.known.Add(row.Key)
		return i, !full, err
	}
	for {
		if i, ok = d.evict.Roster.Group(row.Key, row.Time); ok {
			return i, true, nil
		}
		if d.redo != nil {
			return 0, false, nil // its row was rejected
		}
		if err := d.flush(ctx, before); err != nil {
			return 0, false, err
		}
	}
}

// awaitAll waits until everything that was appended is answered, and the answers are written.
func (d *detector) awaitAll(ctx context.Context) error { return d.window.All(ctx, d.state.After) }

// parts returns the batch by shard, packed, and waits until each shard may have it.
func (d *detector) parts(ctx context.Context) ([]feed.Part, error) {
	all, err := d.state.Groups.Split(&d.batch.Observations)
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		if err := d.window.Room(ctx, p.Shard, d.state.End(p.Shard)); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// redo is a batch of which a process that was killed has stored some parts. Its rows are read again
// before any others, and those of the shards that lack their part are appended.
type redo struct {
	from, to position
}

// again sets the batch to complete, if there is one. A stream cannot be read again.
func (d *detector) again(to position) error {
	if len(d.state.Missing) == 0 {
		return nil
	}
	from, err := positionOf(d.state.Last.Before)
	d.redo = &redo{from: from, to: to}
	return err
}

// drop gives up the batch that is to be completed unless the input is the file that has its rows.
func (d *detector) drop(in *input) bool {
	if d.redo == nil || in.file != nil && (in.found || d.redo.to.File.in(in.file, in.id)) {
		return false
	}
	d.o.Log.Warn("rows are lost that the process before this one has read when it was killed: they cannot be read "+
		"again from this input", "shards", d.state.Missing)
	d.redo = nil
	d.state.GiveUp()
	return true
}

// repeat takes a row of a batch that is completed. at is the position behind the row.
func (d *detector) repeat(ctx context.Context, i int, row *rows.Row, rejected *rows.Reject, read time.Time, at position,
) error {
	if rejected == nil {
		if slices.Contains(d.state.Missing, d.state.Groups.ShardOf(i)) {
			d.batch.Add(i, row, read)
		}
	}
	if at.Records < d.redo.to.Records {
		return nil
	}
	n := d.batch.Len()
	parts, err := d.parts(ctx)
	if err != nil {
		return err
	}
	if err := d.state.Complete(ctx, parts); err != nil {
		return err
	}
	d.redo = nil
	d.sent(n)
	return nil
}

// swapped stores the states in the answer to a swap.
func (d *detector) swapped(ctx context.Context, e commitlog.Answer) error {
	if d.evict == nil {
		return nil
	}
	got, err := swarms.DecodeSwapped(e.Data)
	if err != nil {
		return fmt.Errorf("answer %d: %w", e.Seq, err)
	}
	return d.evict.States.Put(ctx, e.Place, got.States)
}
