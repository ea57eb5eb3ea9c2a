package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/internal/app/ops/explain"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// DetectorView is a detector with its sources and sinks, as URIs without queries.
type DetectorView struct {
	detectors.Detector
	Sources []string `json:"sources"`
	Sinks   []string `json:"sinks"`
	// Most is the number of entities or of sources that can have a group.
	Most int `json:"max_entities"`
}

// Detectors returns all detectors by name.
func (w *Watcher) Detectors(ctx context.Context) ([]DetectorView, error) {
	all, err := detectors.New(w.conn).List(ctx)
	if err != nil {
		return nil, err
	}
	views := make([]DetectorView, 0, len(all))
	for _, d := range all {
		views = append(views, viewOf(d))
	}
	return views, nil
}

// Detector returns one detector. It fails with jobs.ErrNotFound.
func (w *Watcher) Detector(ctx context.Context, name string) (DetectorView, error) {
	d, err := detectors.New(w.conn).Get(ctx, name)
	return viewOf(d), err
}

func viewOf(d detectors.Detector) DetectorView {
	v := DetectorView{Detector: d, Sources: []string{}, Sinks: []string{}, Most: d.Spec.Groups()}
	bare := func(uri string) string {
		uri, _, _ = strings.Cut(uri, "?")
		return uri
	}
	for _, s := range d.Spec.Sources {
		v.Sources = append(v.Sources, bare(s.URI))
	}
	for _, s := range d.Spec.Sinks {
		v.Sinks = append(v.Sinks, bare(s.URI))
	}
	if d.Spec.Webhook != nil {
		v.Sinks = append(v.Sinks, "webhook")
	}
	return v
}

// ExplainDetector returns why a detector does not progress.
func (w *Watcher) ExplainDetector(ctx context.Context, name string) (explain.Reason, error) {
	return ExplainDetector(ctx, w.conn, name)
}

// ExplainDetector returns why the detector of a name does not progress. The error is that of a
// question that failed although the servers answer. It asks for its job, and for its swarm if rows
// wait for decisions. It changes nothing.
func ExplainDetector(ctx context.Context, c *natsq.Conn, name string) (explain.Reason, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*explainPatience)
	defer cancel()
	f := explain.DetectorFacts{Name: name, Now: time.Now(), Servers: facts(ctx, c)}
	if f.Servers.Error != nil {
		return explain.Detector(f), nil
	}
	d, err := detectors.New(c).Get(ctx, name)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return explain.Detector(f), nil
	case err != nil:
		if f.Servers = facts(context.WithoutCancel(ctx), c); f.Servers.Troubled() {
			return explain.Detector(f), nil
		}
		return explain.Reason{}, fmt.Errorf("explain detector %s: %w", name, err)
	}
	f.Found, f.State, f.Error = true, d.State, d.Error
	if n := d.Counts; n != nil {
		f.Counts = &explain.DetectorCounts{
			Rows: n.Rows, Rejected: n.Rejected, Pending: n.Pending, Decisions: n.Decisions, Rate: n.Rate,
			LastDecision: n.LastDecision, Waiting: n.Waiting, Unreachable: n.Unreachable, LastReject: n.LastReject,
		}
	}
	if d.Job != "" && (d.State == detectors.StateRunning || d.State == detectors.StateWaiting) {
		r, err := ExplainJob(ctx, c, d.Job)
		if err != nil {
			return explain.Reason{}, err
		}
		f.Job = &r
	}
	if f.Counts != nil && f.Counts.Pending > 0 && d.State == detectors.StateRunning {
		r, err := ExplainSwarm(ctx, c, name)
		if err != nil {
			return explain.Reason{}, err
		}
		f.Swarm = &r
	}
	f.Now = time.Now()
	return explain.Detector(f), nil
}
