package detectors

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// View is a detector with its sources and sinks, as URIs without queries.
type View struct {
	Detector
	Sources []string `json:"sources"`
	Sinks   []string `json:"sinks"`
	// Most is the number of entities or of sources that can have a group.
	Most int `json:"max_entities"`
}

// Views returns all detectors by name.
func (d *Detectors) Views(ctx context.Context) ([]View, error) {
	all, err := d.List(ctx)
	views := make([]View, 0, len(all))
	for _, one := range all {
		views = append(views, viewOf(one))
	}
	return views, err
}

// View returns one detector. It fails with jobs.ErrNotFound.
func (d *Detectors) View(ctx context.Context, name string) (View, error) {
	one, err := d.Get(ctx, name)
	return viewOf(one), err
}

func viewOf(d Detector) View {
	v := View{Detector: d, Sources: []string{}, Sinks: []string{}, Most: d.Spec.Groups()}
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

// Explain returns why the detector of a name does not progress. It fails if a question fails
// although the servers answer. It asks for its job, and for its swarm if rows wait for decisions.
// It changes nothing.
func Explain(ctx context.Context, c *natsq.Conn, name string) (doctor.Reason, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*doctor.ExplainPatience)
	defer cancel()
	f := doctor.DetectorFacts{Name: name, Now: time.Now(), Servers: doctor.AskServers(ctx, c)}
	if f.Servers.Error != nil {
		return doctor.DetectorReason(f), nil
	}
	d, err := New(c).Get(ctx, name)
	switch {
	case errors.Is(err, jobs.ErrNotFound):
		return doctor.DetectorReason(f), nil
	case err != nil:
		if f.Servers = doctor.AskServers(context.WithoutCancel(ctx), c); f.Servers.Troubled() {
			return doctor.DetectorReason(f), nil
		}
		return doctor.Reason{}, fmt.Errorf("explain detector %s: %w", name, err)
	}
	f.Found, f.State, f.Error = true, d.State, d.Error
	if n := d.Counts; n != nil {
		f.Counts = &doctor.DetectorCounts{
			Rows: n.Rows, Rejected: n.Rejected, Pending: n.Pending, Decisions: n.Decisions, Rate: n.Rate,
			LastDecision: n.LastDecision, Waiting: n.Waiting, Unreachable: n.Unreachable, LastReject: n.LastReject,
		}
	}
	if d.Job != "" && (d.State == StateRunning || d.State == StateWaiting) {
		r, err := doctor.ExplainJob(ctx, c, d.Job)
		if err != nil {
			return doctor.Reason{}, err
		}
		f.Job = &r
	}
	if f.Counts != nil && f.Counts.Pending > 0 && d.State == StateRunning {
		r, err := doctor.ExplainSwarm(ctx, c, name)
		if err != nil {
			return doctor.Reason{}, err
		}
		f.Swarm = &r
	}
	f.Now = time.Now()
	return doctor.DetectorReason(f), nil
}
