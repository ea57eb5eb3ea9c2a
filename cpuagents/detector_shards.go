package cpuagents

import (
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

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
				if group, _, full, err = d.entities.Add(row.Key); err != nil {
					return err
				}
				ok = !full // else it is counted as a reject
			}
			if ok && slices.Contains(d.state.Missing, d.state.Groups.ShardOf(group)) {
				read := r.Arrived()
				if read.IsZero() {
					read = time.Now()
				}
				d.batch.Add(group, &row, read) // it is counted
			}
		}
	}
	parts, err := d.state.Groups.Split(&d.batch.Observations)
	if err != nil {
		return err
	}
	d.log.Info("rows of the last batch are sent again to the shards that lack them", "rows", d.batch.Len(),
		"shards", len(d.state.Missing))
	if err := d.state.Complete(work, parts); err != nil {
		return err
	}
	d.noteAppended()
	d.batch.Reset()
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
