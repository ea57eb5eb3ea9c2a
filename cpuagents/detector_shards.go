package cpuagents

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// parts returns the rows of a batch by shard, packed, with their groups in the swarm.
func (d *detection) parts(o *batch.Observations) (all []commitlog.Part, err error) {
	if d.record.ShardCount() == 1 {
		data, err := o.Pack()
		return []commitlog.Part{{Data: data}}, err
	}
	places := make([][]int, d.record.ShardCount())
	for i, of := range o.Group {
		k := d.state.ShardOf(int(of))
		places[k] = append(places[k], i)
	}
	for k, rows := range places {
		if len(rows) == 0 {
			continue
		}
		part := o.Pick(rows)
		for i, of := range part.Group {
			part.Group[i] = uint32(d.state.Group(int(of)))
		}
		data, err := part.Pack()
		if err != nil {
			return nil, err
		}
		all = append(all, commitlog.Part{Shard: k, Data: data})
	}
	return all, nil
}

// number gives decisions of a shard the groups and leaders of a swarm with one shard: the numbers of
// entities, or of sources without a key. It refuses groups of other shards.
func (d *detection) number(shard int, got *batch.Decisions) error {
	if d.record.ShardCount() == 1 {
		return nil
	}
	for i, group := range got.Group {
		if int(group) >= d.record.Groups || d.record.ShardOf(int(group)) != shard {
			return jobs.Errorf(jobs.CodeInternal, "detector %s: a decision for group %d from shard %d", d.spec.Name,
				group, shard)
		}
		of := uint64(d.state.Entity(int(group)))
		got.Group[i] = uint32(of)
		got.Leader[i] += (of - uint64(group)) * d.agents // unsigned numbers wrap around
	}
	return nil
}

// complete reads the rows of the last batch again, if some shards lack their part of it, and appends
// them. All sources are open at the places before the batch, and have its rows in their journals.
func (d *detection) complete(work context.Context) error {
	if len(d.state.Missing) == 0 {
		return nil
	}
	for i, r := range d.readers {
		// Rows are counted, and not entries: a document that a kill has cut is in the journal twice, and
		// only one of its entries counts.
		to := d.state.Last.Sources[i]
		for at := r.Place(); at.Number+at.Rows < to.Number+to.Rows; at = r.Place() {
			row, rejected, err := r.Next()
			switch {
			case errors.Is(err, source.ErrPause):
				continue
			case errors.Is(err, io.EOF):
				return d.notAgain(i, to)
			case err != nil:
				return err
			case rejected != nil:
				continue // it is counted
			}
			group, ok := i, true
			switch {
			case d.evict != nil:
				group, ok = d.evict.Roster.Group(row.Key, row.Time)
			case d.entities != nil:
				var full bool
				if group, _, full, err = d.entities.add(row.Key); err != nil {
					return err
				}
				ok = !full // else it is counted as a reject
			}
			if ok && slices.Contains(d.state.Missing, d.state.ShardOf(group)) {
				read := r.Arrived()
				if read.IsZero() {
					read = time.Now()
				}
				d.add(group, &row, read)
				d.next.Rows-- // it is counted
			}
		}
	}
	parts, err := d.parts(&d.obs)
	if err != nil {
		return err
	}
	d.log.Info("rows of the last batch are sent again to the shards that lack them", "rows", d.obs.Len(),
		"shards", len(d.state.Missing))
	if err := d.state.Complete(work, parts); err != nil {
		return err
	}
	d.noteAppended()
	d.obs.Reset()
	d.bytes = 0
	return nil
}

// notAgain is the error of a source that does not have the rows of the last batch again.
func (d *detection) notAgain(i int, to source.Place) error {
	return jobs.Errorf(jobs.CodeInternal, "source %s does not have its rows again up to %+v: its journal was changed "+
		"by another program: delete the detector and create it again", d.spec.Sources[i].Name, to)
}

// shardsOf returns the shards of a new swarm as its record has them.
func (d *detection) shardsOf() (int, error) {
	of, err := d.sharding()
	switch n := d.spec.Groups(); {
	case err != nil || of.Shards <= 1:
		return 0, err
	case of.Shards > n || of.Shards > swarms.MaxShards:
		return 0, jobs.Errorf(jobs.CodeInvalid, "detector %s: %v", d.spec.Name, tooManyShards(of.Shards, n))
	default:
		return of.Shards, nil
	}
}
