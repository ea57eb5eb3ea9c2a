package programs

import (
	"context"
	"errors"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// summaryShard is the number of the log of the summaries of entities among the logs of a swarm.
const summaryShard = statelog.KeyShard + 3

func (f *feeder) layout() rows.Layout {
	l := rows.Layout{
		Candidates: f.spec.Vote.Candidates, Features: f.spec.Features, Drops: true, Keys: f.columns.Key,
		Entities: f.entities,
		Explain:  f.spec.Explain, Learning: f.spec.Learning(),
	}
	if len(l.Keys) == 0 {
		l.Series = []string{f.spec.Name}
	}
	return l
}

// explains reports whether the decisions of a swarm go through an explainer.
func explains(spec *swarm.Spec) bool {
	return !spec.Topology().ByAgent && (spec.Explain || spec.Fleet != swarm.Fleet{})
}

// explainer returns an explainer in its initial state, and the newest answer.
func (f *feeder) explainer(ctx context.Context) (x *explain.Explainer, last swarms.Entry, err error) {
	limits, err := f.spec.FleetLimits()
	if err != nil {
		return nil, last, err
	}
	last, err = f.out.Last(ctx)
	return explain.New(f.layout(), (*explain.FleetLimits)(limits)), last, err
}

// openSummaries loads the summaries of a swarm that explains its decisions, or limits its fleet.
// The next batch first reads the answers behind the summaries. An answer that was trimmed before a
// stored summary covered it is left out.
func (f *feeder) openSummaries(ctx context.Context, l swarms.Log) error {
	if !explains(f.spec) {
		return nil
	}
	x, end, err := f.explainer(ctx)
	if err != nil {
		return err
	}
	f.summaries, err = explain.OpenSummaryLog(ctx, l, x, nil, end.Seq)
	if errors.Is(err, statelog.ErrDamaged) {
		return jobs.Errorf(jobs.CodeInternal, "swarm %s: %v", f.swarm.ID(), err)
	}
	return err
}

// decided decodes decisions, and explains them if the specification says so. The answers come in
// the order of the log.
func (f *feeder) decided(e swarms.Entry) (*batch.Decisions, error) {
	d, err := batch.DecodeDecisions(e.Data)
	if err == nil && f.summaries != nil {
		f.summaries.Explainer.Explain(d)
		f.summaries.Reach(e.Seq)
		if !f.spec.Explain {
			d.Explained = nil
		}
	}
	return d, err
}

// storeSummaries stores the summaries after a request, if that is due. Summaries that are not
// stored are made again from the log when the feed is opened.
func (f *feeder) storeSummaries(ctx context.Context) error {
	if f.summaries == nil || f.broken {
		return nil
	}
	if err := f.summaries.Store(ctx, f.summaries.Next()-1); err != nil {
		f.broken = true
		return fmt.Errorf("store the summaries of entities: %w", err)
	}
	return nil
}

// resetSummaries forgets the summaries of a swarm whose agents were reset. The caller has the turn.
func (f *feeder) resetSummaries(ctx context.Context) error {
	if f.summaries == nil {
		return nil
	}
	f.broken = true // the next request opens the feed again
	x, end, err := f.explainer(ctx)
	if err != nil {
		return err
	}
	f.summaries.Explainer = x
	f.summaries.Reach(end.Seq)
	return f.summaries.Put(ctx)
}
