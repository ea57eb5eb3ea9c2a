package detect

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/eviction"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// openEntities makes the dictionary of the detector.
func (d *detector) openEntities() (commitlog.Dictionary, error) {
	if d.spec.EvictAfter == 0 {
		d.known = &dictionary{groups: map[string]int{}}
		d.names = d.known
		return d.known, nil
	}
	bound, err := d.spec.Bind()
	if err != nil {
		return nil, fmt.Errorf("the state of a group: %w", err)
	}
	agent, group := bound.StateBytes()
	d.evict = eviction.New(eviction.Options{
		Most: d.most, After: time.Duration(d.spec.EvictAfter), StateBytes: agent*d.spec.AgentsPerGroup + group,
		Group:   d.record.EntityGroup,
		ShardOf: func(i int) int { return d.record.ShardOf(d.record.EntityGroup(i)) },
	})
	d.names = d.evict.Names
	return d.evict, nil
}

// entities returns the number of entities with a group.
func (d *detector) entities() int {
	if d.evict != nil {
		return d.evict.Roster.Len()
	}
	return len(d.known.keys)
}

// openAnswers opens the answers that are not written, and those that the explainer has not seen.
func (d *detector) openAnswers(ctx context.Context, log func(shard int, dir swarms.Direction) swarms.Log) error {
	o := commitlog.AnswersOptions{
		Order: log(logShard(d.record, orderShard), swarms.In), Taken: d.state.out.Answer, From: d.summaries.Next(),
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
	for _, entry := range at {
		d.answered = append(d.answered, statelog.NewAnswered(entry))
	}
	d.output.reached.Store(d.state.out.Answer)
	return nil
}

// entity returns the number of the entity of a row, and false if there is none left. A full batch that
// holds the groups of all others is appended first, with the position before the row.
func (d *detector) entity(ctx context.Context, row *rows.Row, before position) (i int, ok bool, err error) {
	if d.evict == nil {
		i, ok = d.known.add(row.Key, d.most)
		return i, ok, nil
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
func (d *detector) awaitAll(ctx context.Context) error {
	for k, entry := range d.state.last {
		if err := d.answered[k].Await(ctx, entry); err != nil {
			return err
		}
	}
	return nil
}

// awaitAnswer waits until an entry of a shard is answered.
func (d *detector) awaitAnswer(ctx context.Context, shard int, entry uint64) error {
	return d.answered[shard].Await(ctx, entry)
}

// awaitWindow waits until few entries of a shard have no answer.
func (d *detector) awaitWindow(ctx context.Context, shard int) error {
	return d.awaitAnswer(ctx, shard, d.state.last[shard]-min(d.state.last[shard], inFlight))
}

// parts returns the batch by shard, packed, and waits until each shard may have it.
func (d *detector) parts(ctx context.Context) (all []part, err error) {
	places := make([][]int, d.record.ShardCount())
	if len(places) > 1 {
		for i, of := range d.obs.Group {
			_, k := d.state.group(int(of))
			places[k] = append(places[k], i)
		}
	}
	for k := range places {
		o := &d.obs
		if len(places) > 1 {
			if len(places[k]) == 0 {
				continue
			}
			o = d.obs.Pick(places[k])
			for i, of := range o.Group {
				group, _ := d.state.group(int(of))
				o.Group[i] = uint32(group)
			}
		}
		if err := d.awaitWindow(ctx, k); err != nil {
			return nil, err
		}
		data, err := o.Pack()
		if err != nil {
			return nil, err
		}
		all = append(all, part{k, data})
	}
	return all, nil
}

// number gives decisions the groups and leaders of a swarm with one shard: the numbers of entities.
func (d *detector) number(shard int, got *batch.Decisions) error {
	if d.record.ShardCount() == 1 {
		return nil
	}
	agents := uint64(d.spec.AgentsPerGroup)
	for i, group := range got.Group {
		if int(group) >= d.record.Groups || d.record.ShardOf(int(group)) != shard {
			return jobs.Errorf(jobs.CodeInternal, "a decision for group %d from shard %d", group, shard)
		}
		of := uint64(d.record.GroupEntity(int(group)))
		got.Group[i] = uint32(of)
		got.Leader[i] += (of - uint64(group)) * agents // unsigned numbers wrap around
	}
	return nil
}

// redo is a batch of which a process that was killed has stored some parts. Its rows are read again
// before any others, and those of the shards that lack their part are appended.
type redo struct {
	from, to position
}

// again returns the batch to complete; nil if there is none. A stream cannot be read again.
func (d *detector) again() *redo {
	now := d.state.now
	if len(d.state.missing) == 0 || now.Before == nil {
		return nil
	}
	return &redo{from: *now.Before, to: now.At}
}

// drop gives up the batch that is to be completed unless the input is the file that has its rows.
func (d *detector) drop(in *input) bool {
	if d.redo == nil || in.file != nil && (in.found || d.redo.to.File.in(in.file, in.id)) {
		return false
	}
	d.o.Log.Warn("rows are lost that the process before this one has read when it was killed: they cannot be read "+
		"again from this input", "shards", d.state.missing)
	d.redo, d.state.missing = nil, nil
	return true
}

// repeat takes a row of a batch that is completed. at is the position behind the row.
func (d *detector) repeat(ctx context.Context, i int, row *rows.Row, rejected *rows.Reject, read time.Time, at position,
) error {
	if rejected == nil {
		if _, k := d.state.group(i); slices.Contains(d.state.missing, k) {
			d.add(i, row, read)
		}
	}
	if at.Records < d.redo.to.Records {
		return nil
	}
	n := d.obs.Len()
	parts, err := d.parts(ctx)
	if err != nil {
		return err
	}
	if err := d.state.complete(ctx, parts); err != nil {
		return err
	}
	d.redo = nil
	d.sent(n)
	return nil
}

// move appends the swaps of the entities that lose and get groups with the batch, before it.
func (d *detector) move(ctx context.Context) error {
	changes := d.evict.Changes()
	if len(changes) == 0 {
		return nil
	}
	for k, entry := range d.settled {
		if err := d.awaitAnswer(ctx, k, entry); err != nil {
			return err
		}
	}
	d.settled = nil
	answered := func(shard int) uint64 { return d.answered[shard].Entry() }
	plan, err := d.evict.Plan(changes, answered)
	if err != nil {
		return err
	}
	for i := range plan.Swaps {
		s := &plan.Swaps[i]
		if err := d.awaitWindow(ctx, s.Shard); err != nil {
			return err
		}
		data, _, _, err := s.Encode(ctx, d.awaitAnswer)
		if err != nil {
			return err
		}
		if err := d.state.assign(ctx, s.Assigned); err != nil {
			return err
		}
		d.evict.Names.Add(s.Assigned)
		// No row since the last batch is committed.
		if err := d.state.commit(ctx, swarms.EntrySwap, []part{{s.Shard, data}}, d.state.now.At); err != nil {
			return err
		}
		s.Stored(d.state.last[s.Shard], answered)
	}
	if err := d.state.assign(ctx, plan.Fresh); err != nil {
		return err
	}
	d.evict.Names.Add(plan.Fresh)
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
