package cpuagents

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/commitlog"
	"github.com/exoswarm/exoswarm/cpuagents/explain/explainlog"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// explain adds the explanations to decisions, and applies the limits of the fleet, if the detector has
// any.
func (d *detection) explain(got *batch.Decisions) {
	if d.summaries != nil {
		d.summaries.Explainer.Explain(got)
	}
}

// explained passes an answer that the sinks have to the explainer.
func (d *detection) explained(e commitlog.Answer) error {
	if d.evict != nil {
		d.evict.Names.Reach(e.Shard, e.Seq)
	}
	if e.Kind != swarms.EntryDecide {
		return nil
	}
	got, err := d.decisions(e)
	if err == nil {
		d.explain(got)
	}
	return err
}

// openSummaries makes the explainer of a detector that explains or limits its fleet, as it was at the
// position of the sinks or before.
func (d *detection) openSummaries(ctx context.Context) error {
	if !d.spec.Explain && d.spec.Fleet == nil {
		return nil
	}
	if err := d.explains(); err != nil {
		return err
	}
	var err error
	d.summaries, err = explainlog.Open(ctx, d.stream.log(commitlog.ClusterLogs.Summaries, swarms.In), d.explainer,
		d.state.Collected.Answer)
	if errors.Is(err, statelog.ErrDamaged) {
		return fmt.Errorf("detector %s: %w", d.spec.Name, err)
	}
	return err
}
